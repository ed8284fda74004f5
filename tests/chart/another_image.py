"""Makes another image from one in an OCI archive: the same files under another name, with a label that gives it a digest of its own.

    another_image.py ARCHIVE NAME FILE
"""

import hashlib
import io
import json
import sys
import tarfile


def main(archive, name, file):
    with tarfile.open(archive) as source:
        content = {member.name.removeprefix("./"): source.extractfile(member).read() for member in source if member.isfile()}

    def take(descriptor):
        return content.pop("blobs/sha256/" + descriptor["digest"].removeprefix("sha256:"))

    def put(descriptor, value):
        text = json.dumps(value).encode()
        digest = hashlib.sha256(text).hexdigest()
        content[f"blobs/sha256/{digest}"] = text
        descriptor |= {"digest": f"sha256:{digest}", "size": len(text)}

    index = json.loads(content["index.json"])
    (entry,) = index["manifests"]
    manifest = json.loads(take(entry))
    config = json.loads(take(manifest["config"]))
    config["config"]["Labels"] = {"jangar.test/version": "another"}
    put(manifest["config"], config)
    put(entry, manifest)
    entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    content["index.json"] = json.dumps(index).encode()
    with tarfile.open(file, "w") as target:
        for path, data in content.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))


main(*sys.argv[1:])
