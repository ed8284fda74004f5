#!/usr/bin/env bash
# Checks what no schema can tell of the objects of Argo CD below argocd/: that what they point to is there and fits together.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/agents/lib.sh"
kubectl=$(tool kubectl) kustomize=$(tool kustomize) helm=$(tool helm3)
argocd=${1:-$root/argocd}
[[ -d "$argocd/applications" ]] || die "$argocd has no directory applications"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mapfile -t files < <(find "$argocd" -name application.yaml -o -path '*/applicationsets/*.yaml' | sort)
((${#files[@]} > 0)) || die "there is no Application below $argocd"
as_json "${files[@]}" >"$work/argo.json"
mkdir "$work/rendered"
for directory in "$argocd"/applications/*/; do
    name=$(basename "$directory")
    [[ -f "$directory/kustomization.yaml" ]] || die "$directory has no kustomization.yaml, so Argo CD would apply its files as they are"
    render "$directory" >"$work/rendered/$name.yaml" || die "$directory cannot be rendered"
    as_json "$work/rendered/$name.yaml" >"$work/rendered/$name.json"
done
# kubectl does not read a kustomization, which is no object of a cluster; the few lines that matter are found by name.
version=$(sed -n 's/^version: *//p' "$chart/Chart.yaml")
while IFS= read -r -d '' each; do
    pinned=$(sed -n '/^helmCharts:/,/^[a-z]/s/^ *version: *//p' "$each" | sort -u)
    [[ -z "$pinned" || "$pinned" == "$version" ]] || die "$each pins version $pinned of the chart, and charts/agents/Chart.yaml has $version: make them the same"
done < <(find "$argocd" -name kustomization.yaml -print0)
python3 "$root/scripts/agents/argo_lint.py" "$argocd" "$work/argo.json" "$work"/rendered/*.json
