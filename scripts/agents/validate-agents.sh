#!/usr/bin/env bash
# Checks the chart: what is made from code is up to date, every values file renders and fits strict schemas, and nothing is in it
# that this product does not use. JANGAR names a built program; otherwise cargo builds one.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
kubectl=$(tool kubectl) kustomize=$(tool kustomize) helm=$(tool helm3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf -- '-- %s\n' "$*"; }

say "generated files"
scripts/agents/values.py --check
# same_rules ROLE FILE
same_rules() {
    diff <(sed -n '/^rules:/,$p' "tests/cluster/$1") "charts/agents/files/$2" ||
        die "charts/agents/files/$2 is not the Role of tests/cluster/$1: run make generate"
}
same_rules role.yaml controllers-role.yaml
same_rules control-plane-role.yaml control-plane-role.yaml
mkdir "$work/crds"
if [[ -n "${JANGAR:-}" ]]; then
    "$JANGAR" crds --dir "$work/crds"
else
    cargo run --quiet --locked --package jangar -- crds --dir "$work/crds"
fi
diff -r "$work/crds" charts/agents/crds || die "charts/agents/crds is not what the program prints: run make generate"

say "lint, render"
for values in charts/agents/ci/*-values.yaml argocd/applications/*/values.yaml; do
    "$helm" lint --quiet --strict charts/agents --values "$values" || die "helm lint fails with $values"
    name=${values//\//-}
    "$helm" template agents charts/agents --namespace agents --include-crds=false --values "$values" >"$work/$name" || die "the chart does not render with $values"
    # None of these belongs to a control plane without a disk of its own.
    ! grep -nE '^kind: (Ingress|StatefulSet|CronJob|PersistentVolumeClaim)$' "$work/$name" || die "$values renders a kind that this chart does not use"
    ! grep -nE 'value: "?[0-9.]+e\+[0-9]+"?$' "$work/$name" || die "$values renders a number in float notation"
done

say "schemas: renders, CRDs, examples"
scripts/kubeconform.sh "$work"/*-values.yaml "$work"/argocd-*.yaml charts/agents/crds charts/agents/examples argocd/applications/agents/application.yaml

say "size of CRDs"
for crd in charts/agents/crds/*.yaml; do
    size=$(as_json "$crd" | wc -c)
    # What client-side apply can keep in an annotation.
    ((size <= 262144)) || die "$crd is $size bytes as JSON, and 262144 are allowed"
done

say "GitOps"
render argocd/applications/agents >"$work/gitops.yaml" || die "argocd/applications/agents cannot be rendered"
for kind in AgentRun Orchestration; do
    grep -q "kind: $kind$" "$work/gitops.yaml" || die "argocd/applications/agents does not install the kind $kind: includeCRDs must be true"
done
say "all is well"
