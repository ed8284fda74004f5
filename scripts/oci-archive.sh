#!/usr/bin/env bash
# Packs directories as an image with one layer, into a file that containerd imports: an OCI layout in a tar archive.
#
#   scripts/oci-archive.sh [--gzip] NAME CONFIG FILE [ARCHITECTURE=]DIRECTORY ...
#
# NAME is the whole name of the image with its tag, CONFIG the JSON object that says what it runs, such as
# {"Entrypoint":["/bin/jangar"]}. ARCHITECTURE is a word of OCI, such as arm64; without one it is this machine's. Several make an
# image for several. Nothing but tar, gzip and sha256sum is needed: no registry, no daemon, no root. The same directories make
# the same file, because times, owners and the order of entries are fixed.
set -euo pipefail

die() { printf 'oci-archive: %s\n' "$*" >&2 && exit 1; }

compress='' suffix=''
[[ "${1:-}" != --gzip ]] || { compress=yes suffix=+gzip && shift; }
name=${1:?which name} config=${2:?which configuration} file=${3:?which file}
shift 3
(($# > 0)) || die "which directory?"

case $(uname -m) in
    x86_64) own=amd64 ;;
    aarch64 | arm64) own=arm64 ;;
    *) die "no name is known for the architecture $(uname -m)" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/blobs/sha256"

pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu "$@"; }
digest_of() { sha256sum "$1" | cut -d' ' -f1; }

# blob FILE: moves it to where its content says, and sets `digest` and `size`.
blob() {
    digest=$(digest_of "$1") size=$(stat -c %s "$1")
    mv "$1" "$work/blobs/sha256/$digest"
}

# image ARCHITECTURE DIRECTORY: makes its blobs, and sets `manifest` to what an index says of it.
image() {
    local layer settings unpacked
    pack -C "$2" -cf "$work/layer" .
    unpacked=$(digest_of "$work/layer")
    if [[ -n "$compress" ]]; then
        # Neither name nor time go into it.
        gzip -n -6 "$work/layer"
        mv "$work/layer.gz" "$work/layer"
    fi
    blob "$work/layer"
    layer=$(printf '{"mediaType":"application/vnd.oci.image.layer.v1.tar%s","digest":"sha256:%s","size":%d}' "$suffix" "$digest" "$size")

    printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$1" "$config" "$unpacked" >"$work/config"
    blob "$work/config"
    settings=$(printf '{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%d}' "$digest" "$size")

    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' "$settings" "$layer" >"$work/manifest"
    blob "$work/manifest"
    manifest=$(printf '"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%d,"platform":{"architecture":"%s","os":"linux"}' "$digest" "$size" "$1")
}

all=''
for each in "$@"; do
    architecture=$own directory=$each
    [[ "$each" != *=* ]] || architecture=${each%%=*} directory=${each#*=}
    [[ -d "$directory" ]] || die "$directory is not a directory"
    image "$architecture" "$directory"
    all+="${all:+,}{$manifest}"
done
if (($# > 1)); then
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}' "$all" >"$work/index"
    blob "$work/index"
    manifest=$(printf '"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:%s","size":%d' "$digest" "$size")
fi
# containerd goes by the first annotation, other tools by the second.
printf '{"schemaVersion":2,"manifests":[{%s,
"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' "$manifest" "$name" "${name##*:}" >"$work/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/oci-layout"

mkdir -p "$(dirname "$file")"
# Beside its place first, so that the file is there in full or not at all.
pack -C "$work" -cf "$file.part" oci-layout index.json blobs
mv -f "$file.part" "$file"
