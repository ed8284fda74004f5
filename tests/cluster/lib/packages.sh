#!/usr/bin/env bash
# Prints the directory that holds what the real node needs from the distribution: containerd, runc, the CNI plugins and
# nft, and two images packed from a static busybox.
#
# Packages are unpacked into the cache and not installed: nothing on the machine changes. What the machine has already is
# used where it is. Only the path goes to standard output.
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
source "$here/base.sh"

packages=(busybox-static containerd containernetworking-plugins iproute2 nftables runc)
programs=(containerd containerd-shim-runc-v2 ctr runc nft ip)
plugins=(bridge host-local loopback)

# Another release of the distribution has other packages, so it is part of the name, as is all that is done here.
key=$({
    cat "${BASH_SOURCE[0]}" "$root/scripts/oci-archive.sh" /etc/os-release 2>/dev/null
    echo "$pause_image $busybox_image"
} | cksum | tr ' ' -)
directory=$cache/tools/node-$(uname -m)-$key

# Prints what would be installed: those of the packages, and of all that they depend on, that the machine lacks.
lacking() {
    apt-get install --print-uris -qq --yes --no-install-recommends "${packages[@]}" | awk '{ sub(/_.*/, "", $2); print $2 }'
}

# download DIRECTORY: gets them there.
download() {
    local names
    names=$(lacking) || return
    [[ -n "$names" ]] || return 0
    say "unpacking into the cache, installing nothing: ${names//$'\n'/ }"
    # shellcheck disable=SC2086 # One word for each package.
    (cd "$1" && apt-get download -qq -o APT::Sandbox::User=root $names >&2)
}

# fetch WORK
fetch() {
    local package
    # Without apt-get the machine has to have everything.
    command -v apt-get >/dev/null || return 0
    mkdir "$1/debs"
    if ! download "$1/debs"; then
        # Its lists are missing, or so old that they name packages that have been replaced since.
        say "apt-get could not get all of ${packages[*]}: running apt-get update, then trying once more"
        apt-get update -qq >&2 || die "apt-get update failed, so packages for the real node cannot be fetched; see its words above"
        download "$1/debs" || die "packages for the real node could not be downloaded, also after apt-get update; see the words of apt-get above"
    fi
    for package in "$1"/debs/*.deb; do [[ ! -e "$package" ]] || dpkg-deb --extract "$package" "$1/node"; done
}

# check NODE: every program is there.
check() {
    local missing=() each cni
    PATH=$1/usr/sbin:$1/usr/bin:$1/sbin:$1/bin:$PATH
    for each in "${programs[@]}"; do type -P "$each" >/dev/null || missing+=("$each"); done
    # Distributions do not agree on where the plugins are. What was unpacked is named relative to its place, which changes.
    for cni in usr/lib/cni /usr/lib/cni /usr/libexec/cni /opt/cni/bin; do [[ ! -x "$(cd "$1" && realpath -m "$cni")/bridge" ]] || break; done
    ln -s "$cni" "$1/cni"
    for each in "${plugins[@]}"; do [[ -x "$1/cni/$each" ]] || missing+=("the CNI plugin $each"); done
    ((${#missing[@]} == 0)) || die "the real node needs programs that this machine does not have: ${missing[*]}. Where there is no apt-get to fetch them, install containerd, runc, nftables, iproute2 and the CNI plugins."
}

# Whether a program asks for no loader of shared libraries, of which a container has none.
is_static() { ! LC_ALL=C grep -qaE '/lib(64)?/ld-(linux|musl)' "$1"; }

# images WORK: busybox under all its names, and the same files as the image that holds a pod's namespaces.
images() {
    local busybox files=$1/files each
    busybox=$(PATH=$1/node/bin:$1/node/usr/bin:$PATH type -P busybox) || die "the real node needs busybox (Debian: busybox-static)"
    is_static "$busybox" || die "$busybox needs shared libraries, which a container does not have: get a static one (Debian: busybox-static)"
    mkdir -p "$files"/{bin,dev,etc,proc,root,sys,tmp}
    chmod 1777 "$files/tmp"
    cp "$busybox" "$files/bin/busybox"
    for each in $("$busybox" --list); do [[ "$each" == busybox ]] || ln -s busybox "$files/bin/$each"; done
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$files/etc/passwd"
    "$root/scripts/oci-archive.sh" "$busybox_image" '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"]}' "$1/node/images/busybox.tar" "$files"
    # It only has to be there, and to end when it is killed.
    "$root/scripts/oci-archive.sh" "$pause_image" '{"Entrypoint":["/bin/sleep","2147483647"]}' "$1/node/images/pause.tar" "$files"
}

if [[ ! -d "$directory" ]]; then
    mkdir -p "$cache/tools"
    work=$(mktemp -d "$cache/tools/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    mkdir "$work/node"
    fetch "$work"
    check "$work/node"
    images "$work"
    # One rename: it is there in full or not at all. Another run may have been quicker, which is as good.
    mv -T "$work/node" "$directory" 2>/dev/null || [[ -d "$directory" ]] || die "$directory could not be made"
fi
echo "$directory"
