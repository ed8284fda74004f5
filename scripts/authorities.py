#!/usr/bin/env python3
"""Prints the certificates of the authorities that Mozilla trusts, in PEM, as the images of Jangar hold them.

    scripts/authorities.py

They are those of the crate webpki-root-certs, whose version and checksum are in Cargo.lock: nothing is fetched, and whatever this machine
trusts does not count. The crate has them as literals of Rust, which are read here, so that no program has to be built and run for it.
"""

import base64
import json
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
CRATE = "webpki-root-certs"
CERTIFICATE = re.compile(r'^\s*// "(.*)"\n\s*CertificateDer::from_slice\(b"((?:\\x[0-9A-Fa-f]{2})+)"\)', re.M)


def source():
    done = subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"authorities.py: cargo metadata failed: {done.stderr.strip()}")
    (package,) = [package for package in json.loads(done.stdout)["packages"] if package["name"] == CRATE]
    return pathlib.Path(package["manifest_path"]).parent


def main():
    crate = source()
    path = crate / "src" / "lib.rs"
    text = path.read_text()
    found = CERTIFICATE.findall(text)
    # One that is written in another way would otherwise be left out without a word.
    if not found or len(found) != text.count("CertificateDer::from_slice("):
        sys.exit(f"authorities.py: {path} is not written as this script reads it")
    # Whoever passes the certificates on has to pass this on with them.
    for line in (crate / "LICENSE").read_text().splitlines():
        print(f"# {line}".rstrip())
    for name, literal in found:
        encoded = base64.b64encode(bytes.fromhex(literal.replace("\\x", ""))).decode()
        print(f"# {name}", "-----BEGIN CERTIFICATE-----", *textwrap.wrap(encoded, 64), "-----END CERTIFICATE-----", sep="\n")


main()
