"""Takes a program out of an image in an OCI archive.

    program.py ARCHIVE PROGRAM FILE
"""

import io
import json
import pathlib
import sys
import tarfile


def main(archive, program, file):
    with tarfile.open(archive) as source:
        content = {member.name.removeprefix("./"): source.extractfile(member).read() for member in source if member.isfile()}

    def blob(descriptor):
        return content["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]

    (entry,) = json.loads(content["index.json"])["manifests"]
    (layer,) = json.loads(blob(entry))["layers"]
    with tarfile.open(fileobj=io.BytesIO(blob(layer))) as files:
        data = files.extractfile(f"./bin/{program}").read()
    path = pathlib.Path(file)
    path.write_bytes(data)
    path.chmod(0o755)


main(*sys.argv[1:])
