#!/usr/bin/env bash
# Progressive delivery of both workloads on a real Kubernetes, by Argo's own controller: refused without it, switched on, a canary
# that pauses and is promoted, one that is aborted, and switched off, while a run goes on and somebody is always there to lead and
# to answer.
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
ready() { "${here[@]}" get pods -l app.kubernetes.io/name="$1" -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' | grep -c True || true; }
pods() { "${here[@]}" get pods -l "agents.proompteng.ai/rollout-role=$1" -o name | wc -l; }
leader() { "${here[@]}" get lease jangar-controller-leader -o jsonpath='{.spec.holderIdentity}' | sed 's/_.*//'; }
# The role of the pod that leads. After a change there may be nobody for some seconds, or a pod of the Deployment on its way out,
# which has no role. What a pod finds in its file cannot be read with a shell, the image has none; its label says the same.
leading_role() {
    local role until=$((SECONDS + 60))
    until role=$("${here[@]}" get pod "$(leader)" -o jsonpath='{.metadata.labels.agents\.proompteng\.ai/rollout-role}' 2>/dev/null) && [[ -n "$role" ]]; do
        ((SECONDS < until)) || die "no pod of the Rollout leads; the Lease says '$(leader)'"
        sleep 0.5
    done
    echo "$role"
}

# agrees: waits until the canary has planned the run that goes on, and would leave it as it is.
agrees() {
    local canary until=$((SECONDS + 60)) objects=jangar_canary_objects
    canary=$("${here[@]}" get pods -l "app.kubernetes.io/name=$name,agents.proompteng.ai/rollout-role=canary" -o jsonpath='{.items[0].metadata.name}')
    until kubectl get --raw "/api/v1/namespaces/$namespace/pods/$canary:8080/proxy/metrics" | grep "^$objects" >"$work/canary" &&
        grep -q "^$objects{controller=\"agent-run\",outcome=\"same\"} 1$" "$work/canary"; do
        ((SECONDS < until)) || die "the canary says of the run: $(<"$work/canary")"
        sleep 0.5
    done
    ! grep 'outcome="\(differs\|unplannable\)"} [^0]' "$work/canary" || die "a canary of the same version differs"
}

# watched: writes down the fewest ready pods of a workload that were seen, until it is ended.
watched() {
    local each fewest=99 now
    while :; do
        for each in "${both[@]}"; do
            now=$(ready "$each")
            ((now >= fewest)) || { fewest=$now && echo "$fewest" >"$work/fewest"; }
        done
        sleep 0.5
    done
}

prepare
"$helm" install agents charts/agents --namespace "$namespace" --create-namespace --values "$work/bench.yaml" >/dev/null
installed_in "$namespace"

if ! kubectl get crd rollouts.argoproj.io >/dev/null 2>&1; then
    say "a cluster without Argo Rollouts is refused"
    ! upgrade --set progressiveDelivery.enabled=true 2>"$work/said" || die "it was not refused"
    grep -q 'install Argo Rollouts first' "$work/said" || die "it was refused with other words: $(<"$work/said")"
fi
kubectl apply --server-side --force-conflicts -f "$crds"/rollout-crd.yaml -f "$crds"/analysis-run-crd.yaml -f "$crds"/analysis-template-crd.yaml \
    -f "$crds"/cluster-analysis-template-crd.yaml -f "$crds"/experiment-crd.yaml >/dev/null
kubectl wait crd rollouts.argoproj.io --for=condition=Established --timeout="$limit"
"$controller" --kubeconfig="$KUBECONFIG" --namespaced --namespace="$namespace" --leader-elect=false --loglevel=warn --healthzPort=18080 --metricsPort=18090 \
    >"$work/controller.log" 2>&1 &
processes+=($!)

start_run "$namespace" long 60
watched &
processes+=($!)

say "from Deployment to Rollout"
"${here[@]}" annotate deployment "${both[@]}" helm.sh/resource-policy=keep
upgrade --set progressiveDelivery.enabled=true
phase Healthy
"${here[@]}" delete deployment "${both[@]}" --timeout="$limit"

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

say "canaries are aborted, and the version before comes back without steps"
upgrade --set logging.level=trace
phase Paused
status '{"status":{"abort":true}}'
phase Degraded
upgrade --set logging.level=debug
phase Healthy

say "from Rollout to Deployment"
"${here[@]}" annotate rollout "${both[@]}" helm.sh/resource-policy=keep
upgrade --set progressiveDelivery.enabled=false
installed_in "$namespace"
"${here[@]}" delete rollout "${both[@]}" --timeout="$limit"
installed_in "$namespace"

kill "${processes[-1]}"
((fewest = $(<"$work/fewest"))) || die "at some time a workload had no pod ready"
succeeds "$namespace" long
"$helm" uninstall agents --namespace "$namespace" --timeout "$limit" >/dev/null
say "all is well; never fewer than $fewest pods of a workload were ready"
