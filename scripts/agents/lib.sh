# What the checks of manifests share: places, words, tools. It is sourced.
# shellcheck shell=bash disable=SC2034,SC2154 # Names are used, and tools are found, where this is sourced.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/jangar
chart=$root/charts/agents
modules=$root/tests/cluster/go

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

tool() { "$root/scripts/tools.sh" "$1"; }

# as_json FILE ...: objects of YAML files as JSON, one after the other. No cluster is asked. A label that every object gets makes
# kubectl print them; it is not looked at.
as_json() {
    local each
    for each in "$@"; do
        "$kubectl" annotate --local --overwrite --filename "$each" jangar.test/read=yes --output json || die "$each cannot be read"
    done
}

# render DIRECTORY: what Argo CD applies for a directory with a kustomization.
render() { "$kustomize" build --enable-helm --helm-command "$helm" "$1"; }

# module NAME MODULE: the directory of a module in the version that tests/cluster/go/NAME/go.mod pins. One that Go has unpacked
# already is not asked for again, so that this also works where nothing can be fetched.
module() {
    local version directory
    version=$(sed -n "s|^[[:space:]]*\(require \)*$2 \(v[^ ]*\).*|\2|p" "$modules/$1/go.mod" | head -n 1)
    [[ -n "$version" ]] || die "tests/cluster/go/$1/go.mod does not name a release of $2"
    directory=$(go env GOMODCACHE)/$2@$version
    [[ -d "$directory" ]] || (cd "$modules/$1" && go mod download "$2@$version") || die "$2 $version cannot be had"
    printf '%s\n' "$directory"
}
