#!/usr/bin/env bash
# Prints a directory with a strict JSON schema for every kind that manifests of this repository may have: those of Kubernetes, of
# Argo CD, Argo Rollouts and the Prometheus operator, and Jangar's own. They are made from what these projects publish in their
# Go modules, and kept outside the checkout. Only the path goes to standard output.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
kubectl=$(tool kubectl)
modules=$root/tests/cluster/go

# module NAME MODULE: the directory of a module in the version that tests/cluster/go/NAME/go.mod pins.
module() {
    local version
    version=$(sed -n "s|^[[:space:]]*\(require \)*$2 \(v[^ ]*\).*|\2|p" "$modules/$1/go.mod" | head -n 1)
    [[ -n "$version" ]] || die "tests/cluster/go/$1/go.mod does not name a release of $2"
    (cd "$modules/$1" && go mod download -json "$2@$version") | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p'
}

key=$(cat "${BASH_SOURCE[0]}" "$root/scripts/agents/schemas.py" "$modules"/{schemas,kube,rollouts}/go.mod "$chart"/crds/*.yaml | cksum | tr ' ' -)
directory=$cache/schemas-$key
if [[ ! -d "$directory" ]]; then
    "$root/scripts/tools.sh" need go
    kubernetes=$(module kube k8s.io/kubernetes)
    rollouts=$(module rollouts github.com/argoproj/argo-rollouts)
    argocd=$(module schemas github.com/argoproj/argo-cd/v3)
    prometheus=$(module schemas github.com/prometheus-operator/prometheus-operator)
    mkdir -p "$cache"
    # One rename at the end: it is there in full or not at all.
    work=$(mktemp -d "$cache/schemas.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    for each in "$chart"/crds/*.yaml "$rollouts"/manifests/crds/{rollout,analysis-template}-crd.yaml \
        "$argocd"/manifests/crds/{application,applicationset,appproject}-crd.yaml \
        "$prometheus"/example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml; do
        as_json "$each"
    done >"$work/crds.json"
    python3 "$root/scripts/agents/schemas.py" "$kubernetes/api/openapi-spec/swagger.json" "$work/crds.json" "$work/made"
    mv -T "$work/made" "$directory" 2>/dev/null || [[ -d "$directory" ]] || die "$directory could not be made"
fi
echo "$directory"
