#!/usr/bin/env bash
# Builds the image of Jangar: `jangar`, `jangar-pod` and `agent-runner`, linked statically, and nothing else. Prints the path
# of the OCI archive, which `ctr images import`, `docker load` and `podman load` read. No registry and no daemon is involved.
#
#   scripts/image.sh [PROFILE] [NAME]
#
# PROFILE is one of cargo's: release, or dev, which builds in a fraction of the time and is what the tests use. cargo knows
# what has changed since the last build, so there is no cache here beside its own.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
profile=${1:-release} name=${2:-jangar.test/jangar:$profile}

say() { printf 'image: %s\n' "$*" >&2; }

[[ "$(uname -s)" == Linux ]] || { say "the image is one for Linux, and is built on Linux only" && exit 1; }
"$root/scripts/tools.sh" need cargo
host=$(rustc -vV | sed -n 's/^host: //p')

# With --target the flag is for the programs alone: procedural macros, which run in the compiler, cannot be static.
(cd "$root" && RUSTFLAGS='-C target-feature=+crt-static' CARGO_PROFILE_DEV_STRIP=symbols CARGO_PROFILE_RELEASE_STRIP=symbols \
    cargo build --locked --profile "$profile" --target "$host" --package jangar --package agent-runner --bins) >&2
built=$(cd "$root" && realpath -m "${CARGO_TARGET_DIR:-target}")/$host/$profile
[[ "$profile" != dev ]] || built=${built%/dev}/debug

files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
mkdir -p "$files"/{bin,etc,tmp}
chmod 1777 "$files/tmp"
cp "$built/jangar" "$built/jangar-pod" "$built/agent-runner" "$files/bin"
for program in "$files"/bin/*; do
    ! LC_ALL=C grep -qaE '/lib(64)?/ld-(linux|musl)' "$program" || { say "$program is not static" && exit 1; }
done
printf 'root:x:0:0:root:/:/bin/false\njangar:x:65532:65532:jangar:/:/bin/false\n' >"$files/etc/passwd"

archive=$root/target/image/jangar-$profile.tar
"$root/scripts/oci-archive.sh" "$files" "$name" '{"User":"65532:65532","Env":["PATH=/bin"],"Entrypoint":["/bin/jangar"]}' "$archive"
say "$name, $(du -m "$archive" | cut -f1) MB"
echo "$archive"
