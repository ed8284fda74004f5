#!/usr/bin/env bash
# Progressive delivery of both workloads on a real Kubernetes, by Argo's own controller: refused without it, switched on, a canary
# that pauses and is promoted, one that is aborted, one that may not go on because it cannot plan what the leader works on, and switched off. A run
# goes on during each switch, every workload always has a pod that is ready, and every request through the Service is answered.
# It runs inside a bench: tests/cluster/bench.sh run tests/chart/delivered.sh
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
helm=$(scripts/tools.sh helm3)
controller=$(scripts/tools.sh rollouts)
# The controller was built from the same module, so that Go has it.
crds=$(source scripts/agents/lib.sh && module rollouts github.com/argoproj/argo-rollouts)/manifests/crds

namespace=chart-delivered-$RANDOM
namespaces+=("$namespace")
here=(kubectl -n "$namespace")
name=agents-controllers
both=(agents "$name")

upgrade() { "$helm" upgrade agents charts/agents --namespace "$namespace" --reuse-values "$@" >/dev/null; }
phase() { "${here[@]}" wait "${both[@]/#/rollout/}" --for=jsonpath='{.status.phase}'="$1" --timeout="$limit"; }
status() { "${here[@]}" patch "${both[@]/#/rollout/}" --subresource=status --type=merge --patch "$1"; }
# ready WORKLOAD: how many of its pods are ready. An API server that does not answer is not a workload without pods.
ready() {
    local all
    all=$("${here[@]}" get pods -l app.kubernetes.io/name="$1" -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}') || return 1
    grep -c True <<<"$all" || true
}
pods() { "${here[@]}" get pods -l "agents.proompteng.ai/rollout-role=$1" -o name | wc -l; }
leader() { "${here[@]}" get lease jangar-controller-leader -o jsonpath='{.spec.holderIdentity}' | sed 's/_.*//'; }
# The role of the pod that leads. After a change there may be nobody for some seconds, or a pod of the Deployment on its way out,
# which has no role. What a pod finds in its file cannot be read with a shell, the image has none; its label says the same.
leading_role() {
    local role until=$((SECONDS + 180))
    until role=$("${here[@]}" get pod "$(leader)" -o jsonpath='{.metadata.labels.agents\.proompteng\.ai/rollout-role}' 2>/dev/null) && [[ -n "$role" ]]; do
        ((SECONDS < until)) || die "no pod of the Rollout leads; the Lease says '$(leader)'"
        sleep 0.5
    done
    echo "$role"
}

canary() { "${here[@]}" get pods -l "app.kubernetes.io/name=$name,agents.proompteng.ai/rollout-role=canary" -o jsonpath='{.items[0].metadata.name}'; }

# agrees: waits until the canary has planned the run that goes on, and then for as long as a difference takes to be one; it would leave everything
# as it is.
agrees() {
    local canary until=$((SECONDS + 180)) objects=jangar_canary_objects
    canary=$(canary)
    until kubectl get --raw "/api/v1/namespaces/$namespace/pods/$canary:8080/proxy/metrics" | grep "^$objects" >"$work/canary" &&
        grep -q "^$objects{controller=\"agent-run\",outcome=\"same\"} [^0]" "$work/canary"; do
        ((SECONDS < until)) || die "the canary says of the run: $(<"$work/canary")"
        sleep 0.5
    done
    # 30 s, and a survey.
    sleep 45
    kubectl get --raw "/api/v1/namespaces/$namespace/pods/$canary:8080/proxy/metrics" | grep "^$objects" >"$work/canary"
    ! grep 'outcome="\(differs\|recent\|unplannable\)"} [^0]' "$work/canary" || die "a canary of the same version differs"
}

# answer_of URL: what is said there, whichever code it has.
answer_of() {
    python3 - "$1" <<'PYTHON'
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
except urllib.error.HTTPError as answer:
    print(answer.read().decode())
except OSError as error:
    print(error)
PYTHON
}

# refuses: an Agent that no version can plan, of which the status says that the leader has accepted it, keeps the canary from being ready and the Rollout from
# going on, until it is gone.
refuses() {
    local until=$((SECONDS + 120)) said
    kubectl patch crd agents.agents.proompteng.ai --type=json --patch '[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/env","value":{"x-kubernetes-preserve-unknown-fields":true}}]' >/dev/null
    until printf '{"apiVersion":"agents.proompteng.ai/v1alpha1","kind":"Agent","metadata":{"name":"odd"},"spec":{"providerRef":{"name":"minimal"},"env":"many"}}' | "${here[@]}" apply -f - >/dev/null 2>&1; do
        ((SECONDS < until)) || die "the API server does not take the Agent"
        sleep 0.5
    done
    "${here[@]}" patch agent odd --subresource=status --type=merge --patch '{"status":{"observedGeneration":1}}' >/dev/null
    upgrade --set logging.level=warn
    until=$((SECONDS + 180))
    until said=$(answer_of "http://$("${here[@]}" get pod "$(canary)" -o jsonpath='{.status.podIP}'):8080/readyz"); [[ "$said" == *odd* ]]; do
        ((SECONDS < until)) || die "the canary does not say that it cannot plan an Agent: $said"
        sleep 0.5
    done
    [[ "$("${here[@]}" get rollout "$name" -o jsonpath='{.status.phase}')" == Progressing ]] || die "the Rollout went on with a canary that is not ready"
    "${here[@]}" delete agent odd --timeout="$limit" >/dev/null
    kubectl apply --server-side --force-conflicts -f charts/agents/crds >/dev/null
}

# watched: writes down the fewest ready pods of a workload that were seen, and requests that nobody answered, until it is ended. A request is not repeated.
watched() {
    local each fewest=99 now address
    address=$(service_of "$namespace")
    while :; do
        for each in "${both[@]}"; do
            now=$(ready "$each") || continue
            ((now >= fewest)) || { fewest=$now && echo "$fewest" >"$work/fewest"; }
        done
        python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=30)' "http://$address/health" 2>>"$work/refused" || echo >>"$work/refused"
        sleep 0.2
    done
}

prepare
"$helm" install agents charts/agents --namespace "$namespace" --create-namespace --values "$work/bench.yaml" >/dev/null
installed_in "$namespace"

say "a cluster without Argo Rollouts is refused"
# A bench that was kept may have the kind from an earlier test.
kubectl delete crd rollouts.argoproj.io --ignore-not-found --timeout="$limit" >/dev/null
! upgrade --set progressiveDelivery.enabled=true 2>"$work/said" || die "it was not refused"
grep -q 'install Argo Rollouts first' "$work/said" || die "it was refused with other words: $(<"$work/said")"
kubectl apply --server-side --force-conflicts -f "$crds"/rollout-crd.yaml -f "$crds"/analysis-run-crd.yaml -f "$crds"/analysis-template-crd.yaml \
    -f "$crds"/cluster-analysis-template-crd.yaml -f "$crds"/experiment-crd.yaml >/dev/null
established crd {rollouts,analysisruns,analysistemplates,clusteranalysistemplates,experiments}.argoproj.io
"$controller" --kubeconfig="$KUBECONFIG" --namespaced --namespace="$namespace" --leader-elect=false --loglevel=warn --healthzPort=18080 --metricsPort=18090 \
    >"$work/controller.log" 2>&1 &
processes+=($!)

start_run "$namespace" there 3600
: >"$work/refused"
watched &
processes+=($!)
watcher=$!

say "from Deployment to Rollout"
works "$namespace" there
"${here[@]}" annotate deployment "${both[@]}" helm.sh/resource-policy=keep
upgrade --set progressiveDelivery.enabled=true
phase Healthy
"${here[@]}" delete deployment "${both[@]}" --timeout="$limit"
works "$namespace" there

say "canaries pause; that of the controllers does not lead and plans without writing; they are promoted"
upgrade --set logging.level=debug
phase Paused
[[ "$(pods canary)" == 2 ]] || die "there are $(pods canary) canaries of two workloads"
role=$(leading_role)
[[ "$role" == stable ]] || die "a $role pod leads while stable ones are there: $(leader)"
agrees
status '{"status":{"pauseConditions":null}}'
phase Healthy
[[ "$(pods canary)" == 0 ]] || die "canaries are left after the promotion"
role=$(leading_role)
[[ "$role" == stable ]] || die "a $role pod leads after the promotion"
finish "$namespace" there
succeeds "$namespace" there

say "canaries are aborted, and the version before comes back without steps"
upgrade --set logging.level=trace
phase Paused
before=$(leader)
status '{"status":{"abort":true}}'
phase Degraded
[[ "$(leader)" == "$before" ]] || die "an abort changed who leads: $before, then $(leader)"
upgrade --set logging.level=debug
phase Healthy

say "a canary that cannot plan what the leader works on does not go on"
refuses
phase Paused
status '{"status":{"abort":true}}'
phase Degraded
upgrade --set logging.level=debug
phase Healthy

say "from Rollout to Deployment"
start_run "$namespace" back 3600
"${here[@]}" annotate rollout "${both[@]}" helm.sh/resource-policy=keep
upgrade --set progressiveDelivery.enabled=false
installed_in "$namespace"
"${here[@]}" delete rollout "${both[@]}" --timeout="$limit"
installed_in "$namespace"
works "$namespace" back

kill "$watcher"
((fewest = $(<"$work/fewest"))) || die "at some time a workload had no pod ready"
[[ ! -s "$work/refused" ]] || die "requests through the Service were not answered: $(tail -n 3 "$work/refused")"
finish "$namespace" back
succeeds "$namespace" back
"$helm" uninstall agents --namespace "$namespace" --timeout "$limit" >/dev/null
kubectl delete crd rollouts.argoproj.io --wait=false >/dev/null
say "all is well; never fewer than $fewest pods of a workload were ready, and every request was answered"
