#!/usr/bin/env bash
# Prints a directory with a strict JSON schema for every kind that manifests of this repository may have: those of Kubernetes, of
# Argo CD, Argo Rollouts and the Prometheus operator, and Jangar's own. They are made from what these projects publish in their
# Go modules, and kept outside the checkout. Only the path goes to standard output.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
kubectl=$(tool kubectl)

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
