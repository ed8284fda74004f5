"""Compares what an account was allowed with what it asked for, as the audit log of the API server has it.

    kubectl get role ROLE ... -o json | rights.py LOG USER NAMESPACE    fails if something was refused, if it looked outside of the
                                                                        namespace, and if a right was not used at all
    rights.py LOG USER NAMESPACE refused                                fails if something was refused, or if it asked for nothing
"""

import json
import sys


def main(log, user, namespace, only=None):
    roles = json.load(sys.stdin) if only is None else {"items": []}
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
            if only is None and about.get("namespace") != namespace:
                mistakes.append(f"it looked outside of its namespace: {request['requestURI']}")
    mistakes += [f"nothing needed the right to {' '.join(right)}" for right in sorted(granted - used)]
    if not used:
        mistakes.append("it asked for nothing, so that nothing was shown")
    if mistakes:
        sys.exit(f"rights.py: {user}:\n" + "\n".join(sorted(set(mistakes))))
    if only is None:
        print(f"{user}: {len(granted)} rights, all of them used, and nothing else was asked for")
    else:
        print(f"{user}: {len(used)} rights used, and nothing was refused")


main(*sys.argv[1:])
