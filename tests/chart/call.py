"""Asks a control plane, and prints the code of the answer and its body.

    call.py TOKEN GET URL
    call.py TOKEN POST URL KEY BODY

With a key it is a submission: it is repeated until it is answered, as a client does while pods come and go. The key is what keeps
the run from being made twice.
"""

import http.client
import sys
import time
import urllib.error
import urllib.request

# Longer than an upgrade takes, shorter than anybody waits for a test.
PATIENCE_SECONDS = 120
# Longer than the control plane takes for any answer: a submission that is given up and repeated is answered as a repeated one.
ANSWER_SECONDS = 60


def call(token, method, url, key=None, body=None):
    headers = {"Authorization": f"Bearer {token}"}
    if key is not None:
        headers |= {"Idempotency-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(url, method=method, headers=headers, data=body and body.encode())
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()


def main(arguments):
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            code, text = call(*arguments)
        except (OSError, http.client.HTTPException) as error:
            code, text = 0, str(error)
        # Nobody was there, or too much was asked for at once.
        if code not in (0, 429, 503) or time.monotonic() > end:
            print(code, text)
            return
        time.sleep(0.2)


main(sys.argv[1:])
