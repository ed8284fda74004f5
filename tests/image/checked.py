#!/usr/bin/env python3
"""Shows that the images of scripts/image.sh are what it says of them: `make cluster-image`.

    tests/image/checked.py PROFILE

Static programs, authorities to trust and nothing else, nobody's root, no path of this machine, the same bytes for the same files, images
for several architectures, and a list of parts that has every crate that the programs tell of.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACK = ROOT / "scripts" / "oci-archive.sh"
# Where images of others have one.
SHELLS = {"sh", "bash", "ash", "busybox"}
# What a program of Rust tells of a crate when something in it panics.
CRATE = re.compile(rb"/registry/src/[^/\x00]+/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[0-9A-Za-z.+-]*)/")
# Compilers of code, tests and the like: they run, but are not linked.
NOT_LINKED = {"cc", "insta", "proc-macro2", "syn"}
# Where things are on the machine that builds, which is nobody's business and another one on the next: image.sh has names of its own for them.
HOME = pathlib.Path(os.environ.get("HOME", "/"))
PLACES = [
    ROOT,
    ROOT / os.environ.get("CARGO_TARGET_DIR", "target"),
    ROOT / os.environ.get("CARGO_HOME", HOME / ".cargo"),
    ROOT / os.environ.get("RUSTUP_HOME", HOME / ".rustup"),
]
NAMES = {"/jangar", "/target", "/cargo"}
# Where rustls and all others look first.
AUTHORITIES = "./etc/ssl/certs/ca-certificates.crt"
# Mozilla has trusted more than that for many years.
AUTHORITIES_MIN = 80


def check(holds, words):
    if not holds:
        sys.exit(f"image: {words}")


class Archive:
    """An OCI layout in a tar archive. Every digest in it is looked after."""

    def __init__(self, path):
        with tarfile.open(path) as archive:
            self.content = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
        for name, data in self.content.items():
            if name.startswith("blobs/sha256/"):
                check(name.endswith(hashlib.sha256(data).hexdigest()), f"{path}: {name} is not what its name says")
        (self.entry,) = json.loads(self.content["index.json"])["manifests"]

    def blob(self, descriptor):
        data = self.content["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        check(len(data) == descriptor["size"], f"{descriptor} is not as large as it says")
        return data

    def images(self):
        """Architecture, configuration and files of each."""
        top = json.loads(self.blob(self.entry))
        for descriptor in top.get("manifests", [self.entry]):
            manifest = json.loads(self.blob(descriptor))
            config = json.loads(self.blob(manifest["config"]))
            (layer,) = manifest["layers"]
            data = self.blob(layer)
            if layer["mediaType"].endswith("+gzip"):
                data = gzip.decompress(data)
            check(config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(data).hexdigest()], "the layer is not the one of the configuration")
            check(descriptor["platform"]["architecture"] == config["architecture"], "index and configuration name different architectures")
            yield config["architecture"], config["config"], tarfile.open(fileobj=io.BytesIO(data))


def packed(file, name, config, directories, *options):
    subprocess.run([PACK, *options, name, json.dumps(config, separators=(",", ":")), file, *directories], check=True)
    return pathlib.Path(file).read_bytes()


def holds_programs_alone(name, config, files, programs):
    paths = {member.name: member for member in files}
    directories = {".", "./bin", "./etc", "./etc/ssl", "./etc/ssl/certs", "./tmp"}
    expected = {*directories, "./etc/passwd", AUTHORITIES, *(f"./bin/{program}" for program in programs)}
    check(set(paths) == expected, f"{name} holds {sorted(paths)}")
    check(not SHELLS & {pathlib.PurePath(path).name for path in paths}, f"{name} has a shell")
    check(config["User"] == "65532:65532", f"{name} runs as {config['User']}")
    check("." + config["Entrypoint"][0] in paths, f"{name} lacks its own entry point")
    for member in files:
        check(member.uid == member.gid == 0 and member.mtime == 0, f"{name}: {member.name} has an owner or a time of this machine")


def trusts_authorities(name, files):
    """Those of the crate that the list of parts names, each of which a library can read."""
    text = files.extractfile(AUTHORITIES).read().decode()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Python takes no other signs, and names of authorities stand between the certificates in their own spelling.
    context.load_verify_locations(cadata=text.encode("ascii", "ignore").decode())
    found = context.cert_store_stats()["x509_ca"]
    check(found == text.count("BEGIN CERTIFICATE") >= AUTHORITIES_MIN, f"{name} trusts {found} authorities")


def is_packed_the_same_again(archive, name, config, files, work, options):
    """The same files, made in another order, at another time and by somebody with other habits."""
    again = work / "again"
    again.mkdir()
    before = os.umask(0o077)
    for member in reversed(list(files)):
        path = again / member.name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files.extractfile(member).read())
    os.umask(before)
    for member in files:
        os.chmod(again / member.name, member.mode)
    full = json.loads(Archive(archive).content["index.json"])["manifests"][0]["annotations"]["io.containerd.image.name"]
    data = packed(work / "again.tar", full, config, [again], *options)
    check(data == archive.read_bytes(), f"{name} is not the same when the same files are packed again")


def tells_nothing_of_this_machine(name, programs, files):
    """Whoever builds the same sources elsewhere gets the same programs, as far as paths go."""
    for program in programs:
        data = files.extractfile(f"./bin/{program}").read()
        # Of one behind a link, both names.
        places = {name for place in PLACES for name in (str(place), str(place.resolve()))} - NAMES
        found = sorted(place for place in places if f"{place}/".encode() in data)
        check(not found, f"{program} of {name} has the path {', '.join(found)} in it")


def serves_several_architectures(work):
    directories = []
    for architecture in ("amd64", "arm64"):
        directory = work / architecture
        directory.mkdir()
        (directory / "program").write_text(architecture)
        directories.append(f"{architecture}={directory}")
    packed(work / "several.tar", "jangar.test/several:1", {}, directories, "--gzip")
    found = {architecture: files.extractfile("./program").read().decode() for architecture, _, files in Archive(work / "several.tar").images()}
    check(found == {"amd64": "amd64", "arm64": "arm64"}, f"an image for two architectures has {found}")


def lists_its_parts(name, bom, programs, files):
    check(bom["bomFormat"] == "CycloneDX", f"the list of {name} is not CycloneDX")
    listed = {(part["name"], part["version"]): part for part in bom["components"]}
    for (crate, version), part in listed.items():
        check("purl" not in part or len(part["hashes"][0]["content"]) == 64, f"{crate} {version} has no checksum")
    names = {crate for crate, _ in listed}
    check({"rust-std", "serde", "agent-runner", "webpki-root-certs"} <= names, f"the list of {name} lacks what every program has: {sorted(names)}")
    check(not NOT_LINKED & names, f"the list of {name} has what is not linked: {sorted(NOT_LINKED & names)}")
    told = set()
    for program in programs:
        data = files.extractfile(f"./bin/{program}").read()
        told |= {(crate.decode(), version.decode()) for crate, version in CRATE.findall(data)}
    check(told, f"the programs of {name} tell of no crate, so that nothing was compared")
    check(told <= set(listed), f"the list of {name} lacks {sorted(told - set(listed))}")


def main(profile):
    for name, programs in {"jangar": ["jangar", "jangar-pod", "agent-runner"], "agent-runner": ["agent-runner"]}.items():
        archive = ROOT / "target" / "image" / f"{name}-{profile}.tar"
        # As image.sh packs them.
        options = [] if (profile, name) == ("dev", "jangar") else ["--gzip"]
        bom = json.loads(archive.with_name(f"{name}-{profile}.cdx.json").read_text())
        images = list(Archive(archive).images())
        for _, config, files in images:
            holds_programs_alone(name, config, files, programs)
            trusts_authorities(name, files)
            lists_its_parts(name, bom, programs, files)
            tells_nothing_of_this_machine(name, programs, files)
        if len(images) == 1:
            with tempfile.TemporaryDirectory() as work:
                _, config, files = images[0]
                is_packed_the_same_again(archive, name, config, files, pathlib.Path(work), options)
        print(f"image: {name}: {archive.stat().st_size / 1e6:.1f} MB, {len(bom['components'])} parts listed, the same when packed again")
    with tempfile.TemporaryDirectory() as work:
        serves_several_architectures(pathlib.Path(work))


main(*sys.argv[1:])
