#!/usr/bin/env bash
# Prints the path of a tool that the suites call, after installing it if the cache does not hold it yet.
#
#   scripts/tools.sh cargo-deny | typos | kubectl
#   scripts/tools.sh need PROGRAM         fails with a sentence if PROGRAM is not on the machine
#
# The cache lies outside the checkout, so that every clone and work tree on a machine shares it. A tool is one file in a
# directory named after its version: it is made in a temporary directory beside it and moved into place with one rename.
# A run that is killed therefore leaves nothing that looks finished, and two runs at once do no harm to each other.
# Only the path goes to standard output.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/jangar/tools

cargo_deny_version=0.20.2
typos_version=1.51.0

say() { printf 'tools: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

need() {
    command -v "$1" >/dev/null && return
    case $1 in
        cargo) die "cargo is not installed. Get Rust with rustup; rust-toolchain.toml then picks the version." ;;
        go) die "go is not installed. It builds kubectl: get Go 1.25 or later, or set JANGAR_TEST_KUBECTL to a kubectl 1.35." ;;
        python3) die "python3 is not installed. It installs typos: get Python 3 with pip (Debian: python3 and python3-pip)." ;;
        *) die "$1 is not installed." ;;
    esac
}

# Makes the temporary directory `$work` for one build.
begin_build() {
    mkdir -p "$cache"
    # A build that was killed could not remove its directory; none takes a day.
    find "$cache" -maxdepth 1 -name 'build.*' -mtime +0 -exec rm -rf {} +
    work=$(mktemp -d "$cache/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# keep FILE AS: one rename on one file system, so that the tool is there in full or not at all.
keep() {
    mkdir -p "$(dirname "$2")"
    mv -f "$1" "$2"
    say "installed $2"
}

cargo_deny() {
    local tool=$cache/cargo-deny-$cargo_deny_version/cargo-deny
    if [[ "$("$tool" --version 2>/dev/null)" != "cargo-deny $cargo_deny_version" ]]; then
        need cargo
        say "building cargo-deny $cargo_deny_version from source; this takes some minutes, once"
        begin_build
        cargo install --quiet --locked --root "$work" --target-dir "$work/target" \
            "cargo-deny@$cargo_deny_version" >&2 || die "cargo-deny $cargo_deny_version could not be built"
        keep "$work/bin/cargo-deny" "$tool"
    fi
    echo "$tool"
}

typos() {
    local tool=$cache/typos-$typos_version/typos
    if [[ "$("$tool" --version 2>/dev/null)" != "typos-cli $typos_version" ]]; then
        need python3
        python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip (Debian: python3-pip)"
        say "installing typos $typos_version"
        begin_build
        # The package holds one binary and no Python, so a directory does and no environment is needed.
        PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --only-binary :all: --target "$work/python" \
            "typos==$typos_version" >&2 || die "typos $typos_version could not be installed"
        keep "$work/python/bin/typos" "$tool"
    fi
    echo "$tool"
}

kubectl_version_of() {
    "$1" version --client --output=json 2>/dev/null | sed -n 's/.*"gitVersion": *"\(v[^"]*\)".*/\1/p'
}

kubectl() {
    if [[ -n "${JANGAR_TEST_KUBECTL:-}" ]]; then
        echo "$JANGAR_TEST_KUBECTL"
        return
    fi
    local found version key tool
    if found=$(type -P kubectl) && [[ "$(kubectl_version_of "$found")" == v1.35.* ]]; then
        echo "$found"
        return
    fi
    # The module k8s.io/kubectl v0.X.Y is what Kubernetes v1.X.Y ships.
    version=$(sed -n 's|^\t*k8s.io/kubectl v0\.\([0-9.]*\)$|v1.\1|p' "$root/tests/kubectl/go.mod")
    [[ -n "$version" ]] || die "tests/kubectl/go.mod does not name a release of k8s.io/kubectl"
    key=$(cd "$root/tests/kubectl" && cat go.mod go.sum main.go | cksum | tr ' ' -)
    tool=$cache/kubectl-$version-$key/kubectl
    if [[ "$(kubectl_version_of "$tool")" != "$version" ]]; then
        need go
        say "building kubectl $version from its Go module; this takes some minutes, once"
        begin_build
        # The version that kubectl prints and the one in its User-Agent are set by the linker, as in its own release.
        (cd "$root/tests/kubectl" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$work/kubectl" -ldflags "-s -w \
            -X k8s.io/component-base/version.gitVersion=$version \
            -X k8s.io/component-base/version.gitMajor=1 \
            -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version") \
            -X k8s.io/client-go/pkg/version.gitVersion=$version" .) >&2 || die "kubectl $version could not be built"
        keep "$work/kubectl" "$tool"
    fi
    echo "$tool"
}

case "${1:-}" in
    cargo-deny) cargo_deny ;;
    typos) typos ;;
    kubectl) kubectl ;;
    need) need "${2:?need which program}" ;;
    *) die "usage: scripts/tools.sh cargo-deny | typos | kubectl | need PROGRAM" ;;
esac
