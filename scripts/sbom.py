#!/usr/bin/env python3
"""Prints what an image is made of, as CycloneDX 1.6 in JSON: every crate that is linked into its programs, the standard library, the C
library and the crate that its trusted authorities are from.

    scripts/sbom.py NAME TARGETS PACKAGE ...

NAME is that of the image, TARGETS those of rustc that it is for, PACKAGE the packages of this workspace whose programs it holds.
cargo says what is linked: neither what only builds, tests or writes code, nor what other features and platforms need. The checksums
are those of Cargo.lock. There is no time and no chance in it, so the same sources make the same list.
"""

import json
import pathlib
import platform
import re
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Lists of the same image are the same, and have the same number.
NAMESPACE = uuid.UUID("6f1d5d52-7a57-5f3a-9d0c-3d1f0a7b9f10")
AUTHORITIES = "webpki-root-certs"


def said(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sbom.py: {' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def linked(packages, target):
    """Name, version and license of every crate."""
    selected = [word for package in packages for word in ("--package", package)]
    text = said("cargo", "tree", "--locked", "--target", target, "--edges", "normal,no-proc-macro", "--prefix", "none",
                "--format", "{p}|{l}", *selected)
    found = {}
    for line in filter(None, text.splitlines()):
        crate, _, licence = line.removesuffix(" (*)").partition("|")
        name, version, *where = crate.split(" ", 2)
        found[name, version.removeprefix("v")] = (licence, bool(where) and where[0].startswith(f"({ROOT}"))
    return found


def checksums():
    """Checksums of Cargo.lock, by name and version."""
    text = (ROOT / "Cargo.lock").read_text()
    pattern = r'^name = "([^"]+)"\nversion = "([^"]+)"\n(?:source = "[^"]+"\n)?checksum = "([0-9a-f]{64})"'
    return {(name, version): digest for name, version, digest in re.findall(pattern, text, re.M)}


def component(name, version, licence, ours, sums):
    crate = {"type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version}
    if licence:
        # The slash of older manifests means OR.
        crate["licenses"] = [{"expression": licence.replace("/", " OR ")}]
    if not ours:
        crate["purl"] = f"pkg:cargo/{name}@{version}"
        digest = sums.get((name, version))
        if digest is None:
            sys.exit(f"sbom.py: Cargo.lock has no checksum for {name} {version}")
        crate["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return crate


def system():
    """What is linked beside crates."""
    rust = re.search(r"^release: (\S+)$", said("rustc", "-vV"), re.M).group(1)
    parts = [{"type": "library", "bom-ref": f"rust-std@{rust}", "name": "rust-std", "version": rust, "licenses": [{"expression": "MIT OR Apache-2.0"}]}]
    kind, version = platform.libc_ver()
    if kind:
        parts.append({"type": "library", "bom-ref": f"{kind}@{version}", "name": kind, "version": version, "licenses": [{"expression": "LGPL-2.1-or-later"}]})
    return parts


def authorities(sums):
    """The crate whose certificates scripts/authorities.py writes, as `linked` has it."""
    (version,) = [version for crate, version in sums if crate == AUTHORITIES]
    return {(AUTHORITIES, version): ("CDLA-Permissive-2.0", False)}


def main(name, targets, *packages):
    crates = {}
    for target in targets.split():
        crates |= linked(packages, target)
    sums = checksums()
    crates |= authorities(sums)
    parts = [component(*key, *value, sums) for key, value in sorted(crates.items())] + system()
    number = uuid.uuid5(NAMESPACE, json.dumps([name, targets, parts]))
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": "image", "name": name}},
        "components": parts,
    }, sys.stdout, indent=1)
    print()


if len(sys.argv) < 4:
    sys.exit("usage: scripts/sbom.py NAME TARGETS PACKAGE ...")
main(*sys.argv[1:])
