#!/usr/bin/env bash
# The chart on a real Kubernetes, with Helm 3 and Helm 4: installed with the image of this checkout, controllers as pods, a run that
# succeeds, an upgrade, and an uninstall that leaves nothing behind that cannot be deleted. Then every values file is shown to the
# API server. It runs inside a bench: tests/cluster/bench.sh run tests/chart/installed.sh
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# installed HELM: the whole life of a release.
installed() {
    local helm=$1 name=$2 namespace left
    namespace=chart-$name-$RANDOM
    namespaces+=("$namespace")

    say "$name: installing"
    # --wait is of no use here: it would not see that somebody leads.
    "$helm" install agents charts/agents --namespace "$namespace" --create-namespace --values "$work/bench.yaml" >"$work/notes"
    grep -q 'kubectl -n .* rollout status deployment/agents-controllers' "$work/notes" || die "the notes do not say how to look: $(<"$work/notes")"
    kubectl -n "$namespace" rollout status deployment/agents-controllers --timeout="$limit"

    say "$name: the smallest example succeeds"
    # The bench has a busybox of its own.
    sed 's|docker.io/library/busybox:.*|jangar.test/busybox:1|' charts/agents/examples/minimal.yaml | kubectl -n "$namespace" apply -f -
    kubectl -n "$namespace" wait agentrun/minimal --for=jsonpath='{.status.phase}'=Succeeded --timeout="$limit"
    kubectl -n "$namespace" logs job/minimal-job | grep -q 'working on example/adder' || die "the pod did not say what it works on"

    say "$name: an upgrade while a run works"
    start_run "$namespace" long 15
    "$helm" upgrade agents charts/agents --namespace "$namespace" --reuse-values --set logging.level=debug --set controller.queue.cluster=0 >/dev/null
    kubectl -n "$namespace" rollout status deployment/agents-controllers --timeout="$limit"
    succeeds "$namespace" long

    say "$name: an uninstall while a run works"
    start_run "$namespace" left 3600
    [[ -n "$(kubectl -n "$namespace" get job left-job -o jsonpath='{.metadata.finalizers}')" ]] || die "the Job of a run that works is not held"
    "$helm" uninstall agents --namespace "$namespace" --timeout "$limit"
    [[ -z "$(kubectl -n "$namespace" get jobs -o jsonpath='{.items[*].metadata.finalizers}')" ]] || die "Jobs are still held after the uninstall"
    left=$(kubectl -n "$namespace" get deployments,jobs,roles,rolebindings,serviceaccounts,services,networkpolicies -l app.kubernetes.io/part-of=jangar -o name)
    [[ -z "$left" ]] || die "the uninstall left something: $left"
    kubectl delete namespace "$namespace" --timeout="$limit"
}

# What the API server says of objects that no schema can say: rules in CEL, names, what contradicts itself.
dry_run() {
    local values name=$1 helm=$2 kinds named each
    say "every values file is shown to the API server"
    namespaces+=("$name")
    kubectl create namespace "$name" >/dev/null
    for values in charts/agents/ci/*-values.yaml; do
        "$helm" template agents charts/agents --namespace "$name" --values "$values" >"$work/render.yaml"
        # Of these the bench does not have the kinds; strict schemas have seen them (make chart-tests).
        kinds='Rollout|ServiceMonitor|PrometheusRule'
        awk -v RS='---\n' -v kinds="(^|\n)kind: ($kinds)\n" '$0 !~ kinds && /kind:/ { printf "---\n%s", $0 }' "$work/render.yaml" >"$work/known.yaml"
        # A dry run makes no namespace for the objects after it.
        mapfile -t named < <(sed -n 's/^  namespace: //p' "$work/known.yaml" | sort -u)
        for each in "${named[@]}"; do
            kubectl get namespace "$each" >/dev/null 2>&1 || { kubectl create namespace "$each" >/dev/null && namespaces+=("$each"); }
        done
        kubectl apply --server-side --dry-run=server -f "$work/known.yaml" >"$work/said" || die "the API server refuses what $values renders"
        echo "$values: $(wc -l <"$work/said") objects accepted"
    done
}

prepare
for major in 3 4; do
    installed "$(scripts/tools.sh "helm$major")" "helm$major"
done
dry_run "chart-dry-$RANDOM" "$(scripts/tools.sh helm3)"
say "all is well"
