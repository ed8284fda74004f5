#!/usr/bin/env bash
# Builds the images of Jangar, linked statically and without a shell, and prints the paths of their OCI archives, which `ctr images
# import`, `docker load` and `podman load` read. No registry and no daemon is involved.
#
#   scripts/image.sh [PROFILE] [REPOSITORY]
#
#   REPOSITORY/jangar:TAG          both workloads: `jangar`, `jangar-pod` and `agent-runner`
#   REPOSITORY/agent-runner:TAG    what images of agents copy: `agent-runner` alone
#
# TAG is JANGAR_IMAGE_TAG, or PROFILE if that is not set.
# PROFILE is one of cargo's: release, or dev, which builds in a fraction of the time and is what the tests use. cargo knows
# what has changed since the last build, so there is no cache here beside its own. JANGAR_IMAGE_TARGETS names the targets of rustc that
# the images are for, this machine's if there are none. Beside each archive its list of parts is written, as CycloneDX.
#
# The same sources, with the same compiler and C library, make the same images: no path of this machine, no time and no owner goes into
# them. The network is used for crates that are not there yet, before anything is built.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
profile=${1:-release} repository=${2:-jangar.test}
tag=${JANGAR_IMAGE_TAG:-$profile}
# What a release weighs less than, packed, for each architecture: a node that has nothing yet pulls it in a few seconds.
limit_bytes=40000000

say() { printf 'image: %s\n' "$*" >&2; }
die() { say "$*" && exit 1; }

[[ "$(uname -s)" == Linux ]] || die "the image is one for Linux, and is built on Linux only"
"$root/scripts/tools.sh" need cargo
"$root/scripts/tools.sh" need python3
host=$(rustc -vV | sed -n 's/^host: //p')
read -ra targets <<<"${JANGAR_IMAGE_TARGETS:-$host}"
target_directory=$(cd "$root" && realpath -m "${CARGO_TARGET_DIR:-target}")
cargo_home=$(realpath -ms "${CARGO_HOME:-$HOME/.cargo}")

# architecture_of TARGET: as OCI calls it.
architecture_of() {
    case $1 in
        x86_64-*-linux-*) echo amd64 ;;
        aarch64-*-linux-*) echo arm64 ;;
        *) die "JANGAR_IMAGE_TARGETS names $1: give x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu, or both" ;;
    esac
}

# build TARGET: makes the programs for it, and sets `built` to where they are.
build() {
    local linker=CARGO_TARGET_${1//-/_}_LINKER maps=() flags each
    [[ -d "$(rustc --print target-libdir --target "$1")" ]] ||
        die "rustc cannot build for $1: rustup target add $1, and name a linker for it in ${linker^^}"
    # A directory of crates is called after whoever they were fetched from. Of one behind a link, either name may be told.
    for each in "$cargo_home=/cargo" "$root=/jangar" "$target_directory=/target" "$cargo_home"/registry/src/*/; do
        [[ "$each" != */ ]] || each=${each%/}=/cargo/registry/src/crates
        maps+=("$each" "$(realpath -m "${each%=*}")=${each##*=}")
    done
    # With --target the flags are for the programs alone: procedural macros, which run in the compiler, cannot be static. Of several maps
    # that fit, the last counts. Flags are divided by a byte that no path has.
    printf -v flags '%s\x1f' -Ctarget-feature=+crt-static "${maps[@]/#/--remap-path-prefix=}"
    (cd "$root" && CARGO_ENCODED_RUSTFLAGS=${flags%$'\x1f'} CARGO_PROFILE_DEV_STRIP=symbols CARGO_PROFILE_RELEASE_STRIP=symbols \
        cargo build --locked --profile "$profile" --target "$1" --package jangar --package agent-runner --bins) >&2
    built=$target_directory/$1/$profile
    [[ "$profile" != dev ]] || built=${built%/dev}/debug
}

# files DIRECTORY PROGRAM ...: what an image holds.
files() {
    local program
    mkdir -p "$1"/{bin,etc/ssl/certs,tmp}
    chmod 1777 "$1/tmp"
    for program in "${@:2}"; do
        ! LC_ALL=C grep -qaE '/lib(64)?/ld-(linux|musl)' "$built/$program" || die "$built/$program is not static"
        install -m 755 "$built/$program" "$1/bin/$program"
    done
    printf 'root:x:0:0:root:/:/bin/false\njangar:x:65532:65532:jangar:/:/bin/false\n' >"$1/etc/passwd"
    # Where every library looks first. Without it no forge, endpoint or database with a certificate could be spoken to.
    cp "$work/authorities.pem" "$1/etc/ssl/certs/ca-certificates.crt"
    chmod 755 "$1" "$1/bin" "$1/etc" "$1/etc/ssl" "$1/etc/ssl/certs"
    chmod 644 "$1/etc/passwd" "$1/etc/ssl/certs/ca-certificates.crt"
}

# image NAME PROGRAM PACKAGE ...: packs what `files` has laid out below `$work/NAME`, and writes the list of its parts.
image() {
    local name=$1 program=$2 archive=$root/target/image/$1-$profile.tar directories=() target packing=() size
    for target in "${targets[@]}"; do directories+=("$(architecture_of "$target")=$work/$name/$target"); done
    # What the tests use is unpacked again at once. The smaller image is packed all the same, so that they see one as a release has it.
    [[ "$profile" == dev && "$name" == jangar ]] || packing=(--gzip)
    "$root/scripts/oci-archive.sh" "${packing[@]}" "$repository/$name:$tag" \
        "{\"User\":\"65532:65532\",\"Env\":[\"PATH=/bin\"],\"Entrypoint\":[\"/bin/$program\"]}" "$archive" "${directories[@]}"
    "$root/scripts/sbom.py" "$repository/$name:$tag" "${targets[*]}" "${@:3}" >"${archive%.tar}.cdx.json"
    size=$(stat -c %s "$archive")
    say "$repository/$name:$tag, $((size / 1000000)) MB"
    [[ "$profile" == dev ]] || ((size < limit_bytes * ${#targets[@]})) || die "$archive has $size bytes, and an image has to have fewer than $limit_bytes for each architecture"
    echo "$archive"
}

(cd "$root" && cargo fetch --locked --quiet)
export CARGO_NET_OFFLINE=true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/scripts/authorities.py" >"$work/authorities.pem"
for target in "${targets[@]}"; do
    architecture_of "$target" >/dev/null
    build "$target"
    files "$work/jangar/$target" jangar jangar-pod agent-runner
    files "$work/agent-runner/$target" agent-runner
done
image jangar jangar jangar agent-runner
image agent-runner agent-runner agent-runner
