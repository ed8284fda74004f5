"""Compares what an account was allowed with what it asked for, as the audit log of the API server has it.

    kubectl get role ROLE ... -o json | rights.py LOG USER NAMESPACE

Fails if something was refused, if it looked outside of the namespace, and if a right was not used at all.
"""

import json
import sys


def main(log, user, namespace):
    roles = json.load(sys.stdin)
    granted = {
        (verb, group, resource)
        for role in roles.get("items", [roles])
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    used, mistakes = set(), []
    with open(log) as lines:
        # The last line may be in the middle of being written.
        for line in (line for line in lines if user in line and line.endswith("\n")):
            request = json.loads(line)
            about = request.get("objectRef")
            if request["user"]["username"] != user or about is None:
                continue
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            right = (request["verb"], about.get("apiGroup", ""), resource)
            used.add(right)
            if request.get("responseStatus", {}).get("code") in (401, 403):
                mistakes.append(f"it was refused to {' '.join(right)}")
            if about.get("namespace") != namespace:
                mistakes.append(f"it looked outside of its namespace: {request['requestURI']}")
    mistakes += [f"nothing needed the right to {' '.join(right)}" for right in sorted(granted - used)]
    if mistakes:
        sys.exit(f"rights.py: {user}:\n" + "\n".join(sorted(set(mistakes))))
    print(f"{user}: {len(granted)} rights, all of them used, and nothing else was asked for")


main(*sys.argv[1:])
