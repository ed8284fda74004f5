"""Sends an issue to a control plane as GitHub does, and prints the code of the answer and its body.

    deliver.py URL SECRET
"""

import hashlib
import hmac
import json
import sys
import urllib.error
import urllib.request

ISSUE = {
    "action": "opened",
    "repository": {"full_name": "example/adder"},
    "issue": {
        "number": 7,
        "title": "Add two numbers",
        "body": "It should add.",
        "state": "open",
        "labels": [{"name": "agent"}],
        "updated_at": "2026-03-01T12:00:00Z",
    },
}


def main(url, secret):
    body = json.dumps(ISSUE).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": "d-1",
        "X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
    }
    request = urllib.request.Request(f"{url}/api/agents/implementation-sources/webhooks/github", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            print(answer.status, answer.read().decode())
    except urllib.error.HTTPError as answer:
        print(answer.code, answer.read().decode())
    except OSError as error:
        print(0, error)


main(*sys.argv[1:])
