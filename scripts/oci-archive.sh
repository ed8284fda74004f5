#!/usr/bin/env bash
# Packs a directory as an image with one layer, into a file that containerd imports: an OCI layout in a tar archive.
#
#   scripts/oci-archive.sh DIRECTORY NAME CONFIG FILE
#
# NAME is the whole name of the image with its tag, CONFIG the JSON object that says what it runs, such as
# {"Entrypoint":["/bin/jangar"]}. Nothing but tar and sha256sum is needed: no registry, no daemon, no root. The same
# directory makes the same file, because times, owners and the order of entries are fixed.
set -euo pipefail

directory=${1:?which directory} name=${2:?which name} config=${3:?which configuration} file=${4:?which file}

case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64 | arm64) architecture=arm64 ;;
    *) printf 'oci-archive: no name is known for the architecture %s\n' "$(uname -m)" >&2 && exit 1 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/blobs/sha256"

pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu "$@"; }

# blob FILE: moves it to where its content says, and sets `digest` and `size`.
blob() {
    digest=$(sha256sum "$1" | cut -d' ' -f1) size=$(stat -c %s "$1")
    mv "$1" "$work/blobs/sha256/$digest"
}

pack -C "$directory" -cf "$work/layer" .
blob "$work/layer"
layer=$(printf '{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:%s","size":%d}' "$digest" "$size")

printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" "$config" "$digest" >"$work/config"
blob "$work/config"
config=$(printf '{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%d}' "$digest" "$size")

printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
    "$config" "$layer" >"$work/manifest"
blob "$work/manifest"
# containerd goes by the first annotation, other tools by the second.
printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%d,
"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
    "$digest" "$size" "$name" "${name##*:}" >"$work/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/oci-layout"

mkdir -p "$(dirname "$file")"
# Beside its place first, so that the file is there in full or not at all.
pack -C "$work" -cf "$file.part" oci-layout index.json blobs
mv -f "$file.part" "$file"
