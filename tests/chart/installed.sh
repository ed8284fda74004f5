#!/usr/bin/env bash
# The chart on a real Kubernetes, with Helm 3 and Helm 4: installed with its kinds and the image of this checkout, both workloads as pods, a run
# by kubectl and one through the control plane that succeed, agentctl at the API server and at the control plane, an upgrade to another image while runs come and go, and an uninstall
# that leaves nothing behind that cannot be deleted. Admission holds every pod to the restricted standard, and the history is in Postgres. Then every values file
# and every example is shown to the API server. It runs
# inside a bench: tests/cluster/bench.sh run tests/chart/installed.sh
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# as_runner_of_ci NAMESPACE: sets `somebody` to arguments by which Helm acts as an account with the rights of argocd/applications/agents-ci there: an admin of
# that one namespace, who has no right at all in the cluster. That it may write kinds is left out.
as_runner_of_ci() {
    awk -v RS='---\n' '!/(^|\n)kind: ClusterRole(Binding)?\n/ { print "---\n" $0 }' argocd/applications/agents-ci/runner-rbac.yaml |
        sed "s/namespace: agents-ci\$/namespace: $1/" | kubectl apply -f - >/dev/null
    [[ "$(kubectl auth can-i get customresourcedefinitions --as "system:serviceaccount:$1:agents-ci-runner" || true)" == no ]] || die "the account has rights in the cluster"
    may "system:serviceaccount:$1:agents-ci-runner" "$1" create deployments
    somebody=(--kube-as-user "system:serviceaccount:$1:agents-ci-runner" --kube-as-group system:authenticated)
}

# installed HELM NAME CHECK ...: the whole life of a release, with these checks in the middle of it. One of both Helms has no right in the cluster.
installed() {
    local helm=$1 name=$2 namespace left check somebody=() kinds=() policy=(--set rbac.creatorPolicy.create=true)
    namespace=chart-$name-$RANDOM
    namespaces+=("$namespace")

    say "$name: installing"
    kubectl create namespace "$namespace" >/dev/null
    # Workloads, hooks and pods of runs are asked for by admission, and not only by fields that a test compares.
    kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
    refused_without_secret "$helm" "$namespace"
    kinds_are_upgraded "$helm" "$namespace"
    # --wait is of no use here: it would not see that somebody leads.
    kubectl -n "$namespace" create secret generic history --from-literal=uri="$database" >/dev/null
    [[ "$name" != helm4 ]] || { as_runner_of_ci "$namespace" && kinds=(--skip-crds) policy=(); }
    "$helm" install agents charts/agents "${somebody[@]}" "${kinds[@]}" "${policy[@]}" --namespace "$namespace" --values "$work/bench.yaml" --set database.secretRef.name=history --set database.secretRef.key=uri >"$work/notes"
    grep -q 'kubectl -n .* rollout status deployment/agents-controllers' "$work/notes" || die "the notes do not say how to look: $(<"$work/notes")"
    kinds_are_there
    installed_in "$namespace"

    say "$name: the smallest example succeeds"
    # The bench has a busybox of its own.
    sed 's|docker.io/library/busybox:.*|jangar.test/busybox:1|' charts/agents/examples/minimal.yaml | kubectl -n "$namespace" apply -f -
    kubectl -n "$namespace" wait agentrun/minimal --for=jsonpath='{.status.phase}'=Succeeded --timeout="$limit"
    kubectl -n "$namespace" logs job/minimal-job | grep 'working on example/adder' >/dev/null || die "the pod did not say what it works on"

    say "$name: the control plane takes a run, once for each key, from those who may start one"
    through_the_control_plane "$namespace"

    for check in "${@:3}"; do
        say "$name: ${check//_/ }"
        "$check" "$namespace" "$helm"
    done

    say "$name: an uninstall while a run works, and a step of another"
    start_run "$namespace" left 3600
    start_step "$namespace" left
    [[ -n "$(kubectl -n "$namespace" get job left-job -o jsonpath='{.metadata.finalizers}')" ]] || die "the Job of a run that works is not held"
    [[ "$(kubectl -n "$namespace" get agentrun left-steps-work-1 -o jsonpath='{.metadata.finalizers}')" == *agents.proompteng.ai/runtime-cleanup* ]] || die "a step that works is not held"
    "$helm" uninstall agents "${somebody[@]}" --namespace "$namespace" --timeout "$limit"
    left=$(kubectl -n "$namespace" get jobs,agentruns,toolruns,orchestrationruns -o jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.finalizers}{"\n"}{end}' | grep 'proompteng\.ai' || true)
    [[ -z "$left" ]] || die "something is still held after the uninstall: $left"
    left=$(kubectl -n "$namespace" get deployments,jobs,roles,rolebindings,serviceaccounts,services,networkpolicies -l app.kubernetes.io/part-of=jangar -o name)
    [[ -z "$left" ]] || die "the uninstall left something: $left"
    kubectl delete namespace "$namespace" --timeout="$limit"
}

# kinds_are_there: all of them, by the chart itself: nobody else has given them to a cluster that was booted for this test.
kinds_are_there() {
    local files
    files=(charts/agents/crds/*.yaml)
    established crd --all
    [[ "$(kubectl get crd -o name | grep -c '\.proompteng\.ai$')" == "${#files[@]}" ]] || die "the cluster does not have the ${#files[@]} kinds of the chart: $(kubectl get crd -o name)"
}

# kinds_are_those_of_the_program: the other command of the README, with the program of the image.
kinds_are_those_of_the_program() {
    local command
    mkdir -p "$work/bin"
    python3 tests/chart/program.py "$archive" jangar "$work/bin/jangar"
    command=$(sed -n 's|.*# or: \(jangar crds .*\)$|\1|p' charts/agents/README.md)
    [[ -n "$command" ]] || die "the README does not say how the program upgrades kinds"
    PATH=$work/bin:$PATH bash -o pipefail -c "$command" >"$work/said" || die "'$command' does not upgrade what Helm installed"
    [[ "$(grep -c 'serverside-applied$' "$work/said")" == "$(find charts/agents/crds -name '*.yaml' | wc -l)" ]] || die "'$command' has not applied every kind: $(<"$work/said")"
    kinds_are_there
}

# nothing_was_refused NAMESPACE: to the controllers, in all that they did so far.
nothing_was_refused() { python3 tests/chart/rights.py "$JANGAR_TEST_CLUSTER/audit.log" "system:serviceaccount:$1:agents-sa" "$1" refused; }

# start_step NAMESPACE AGENT: an orchestration AGENT-steps whose step, of that agent, works.
start_step() {
    kubectl -n "$1" apply -f - >/dev/null <<YAML
apiVersion: orchestration.proompteng.ai/v1alpha1
kind: Orchestration
metadata: {name: $2-steps}
spec:
  steps:
  - name: work
    kind: AgentRun
    agentRef: {name: $2}
    implementation: {inline: {text: Say which repository you work on.}}
    with: {repository: example/adder}
    workload: {image: "jangar.test/busybox:1"}
---
apiVersion: orchestration.proompteng.ai/v1alpha1
kind: OrchestrationRun
metadata: {name: $2-steps}
spec: {orchestrationRef: {name: $2-steps}}
YAML
    kubectl -n "$1" wait "agentrun/$2-steps-work-1" --for=create --timeout="$limit" >/dev/null
    kubectl -n "$1" wait "agentrun/$2-steps-work-1" --for=jsonpath='{.status.phase}'=Running --timeout="$limit"
}

# the_image_of_runners_runs NAMESPACE: packed as a release is.
the_image_of_runners_runs() {
    kubectl -n "$1" apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: runner}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  nodeSelector: {jangar.test/node: real}
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: runner
    image: jangar.test/agent-runner:dev
    imagePullPolicy: Never
    args: [--version]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
YAML
    kubectl -n "$1" wait pod/runner --for=jsonpath='{.status.phase}'=Succeeded --timeout="$limit"
    kubectl -n "$1" logs pod/runner | grep '^agent-runner ' >/dev/null || die "the image of agent-runner does not say its version: $(kubectl -n "$1" logs pod/runner)"
    kubectl -n "$1" delete pod runner --timeout="$limit" >/dev/null
}

# kinds_are_upgraded HELM NAMESPACE: those that Helm has installed, by the command of the README. It is shown with a group of its own, so
# that the kinds that others use stay as they are.
kinds_are_upgraded() {
    local directory=$work/kinds-$2 group="$2.test" command signal patience
    mkdir -p "$directory"/{old/crds,new}
    printf 'apiVersion: v2\nname: kinds\nversion: 0.0.1\n' >"$directory/old/Chart.yaml"
    kubectl create --dry-run=client -o json -f charts/agents/crds/signals.proompteng.ai_signals.yaml >"$directory/signals.json"
    python3 - "$directory" "$group" <<'PYTHON'
import json, pathlib, sys
directory, group = pathlib.Path(sys.argv[1]), sys.argv[2]
kind = json.loads((directory / "signals.json").read_text().replace("signals.proompteng.ai", group))
(directory / "new" / "signals.yaml").write_text(json.dumps(kind))
# As an earlier version might have had it: of one letter.
kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["channel"]["maxLength"] = 1
(directory / "old" / "crds" / "signals.yaml").write_text(json.dumps(kind))
PYTHON
    "$1" install kinds "$directory/old" --namespace "$2" >/dev/null
    established crd "signals.$group"
    signal=$(printf '{"apiVersion":"%s/v1alpha1","kind":"Signal","metadata":{"name":"one"},"spec":{"channel":"longer"}}' "$group")
    # A kind is known a moment after it is served.
    patience=$((SECONDS + 90))
    until ! kubectl -n "$2" create --dry-run=server -f - <<<"$signal" >/dev/null 2>"$work/said" && grep -q 'Too long' "$work/said"; do
        ((SECONDS < patience)) || die "the older kind does not refuse the field: $(<"$work/said")"
        sleep 0.5
    done
    command=$(sed -n 's|^\(kubectl apply .*-f \)charts/agents/crds.*|\1|p' charts/agents/README.md)
    [[ -n "$command" ]] || die "the README does not say how kinds are upgraded"
    # It is words, as a person would type them.
    # shellcheck disable=SC2086
    $command "$directory/new" >/dev/null || die "the command of the README does not upgrade what Helm installed"
    patience=$((SECONDS + 90))
    until kubectl -n "$2" create --dry-run=server -f - <<<"$signal" >/dev/null 2>"$work/said"; do
        ((SECONDS < patience)) || die "the kind was not upgraded: $(<"$work/said")"
        sleep 0.5
    done
    "$1" uninstall kinds --namespace "$2" >/dev/null
    kubectl delete crd "signals.$group" --timeout="$limit" >/dev/null
}

# refused_without_secret HELM NAMESPACE: a pod would wait for it for ever, so it is told before there is one.
refused_without_secret() {
    local secret=(--set database.secretRef.name=nowhere --set database.secretRef.key=uri)
    ! "$1" install agents charts/agents --namespace "$2" --dry-run=server "${secret[@]}" >/dev/null 2>"$work/said" || die "a Secret that is not there was not missed"
    grep -q 'there is no such Secret in the namespace' "$work/said" || die "it was refused with other words: $(<"$work/said")"
    kubectl -n "$2" create secret generic nowhere --from-literal=url=x >/dev/null
    ! "$1" install agents charts/agents --namespace "$2" --dry-run=server "${secret[@]}" >/dev/null 2>"$work/said" || die "a key that is not there was not missed"
    grep -q 'which the Secret nowhere does not have: name one of url' "$work/said" || die "it was refused with other words: $(<"$work/said")"
}

# through_the_control_plane NAMESPACE
through_the_control_plane() {
    local viewer submitter body said run patience
    service=$(service_of "$1")
    viewer=$(caller "$1" reader viewer) submitter=$(caller "$1" starter submitter)
    body=$(submission "$1" example/adder)
    # What is refused is remembered, and the API server remembers nothing: so it is asked whether the rights count.
    may "system:serviceaccount:$1:starter" "$1" create agentruns.agents.proompteng.ai
    patience=$((SECONDS + 90))
    # Rights count a moment after they are given, and what was refused is remembered for some seconds: so those who may look are
    # asked first.
    until said=$(ask "$viewer" GET "/v1/agent-runs/minimal?namespace=$1") && [[ "$said" == 200* ]]; do
        ((SECONDS < patience)) || die "who may look at runs is refused: $said"
        sleep 0.5
    done
    [[ "$said" == *Succeeded* ]] || die "the run is told otherwise than it is: $said"
    said=$(ask "$viewer" POST /v1/agent-runs first "$body")
    [[ "$said" == '403 '* && "$said" == *'verb create'* ]] || die "who may only look started a run: $said"
    said=$(ask bad-token GET "/v1/agent-runs?namespace=$1")
    [[ "$said" == '401 '* ]] || die "a wrong token was not refused: $said"
    said=$(ask "$submitter" POST /v1/agent-runs first "$body")
    [[ "$said" == '201 '* && "$said" == *'"idempotent":false'* ]] || die "the run was not taken: $said"
    run=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1].partition(" ")[2])["resource"]["metadata"]["name"])' "$said")
    said=$(ask "$submitter" POST /v1/agent-runs first "$body")
    [[ "$said" == *'"idempotent":true'* ]] || die "the same key made another run: $said"
    succeeds "$1" "$run"
    # Probes and metrics are on a port of their own, for whoever asks.
    said=$(kubectl get --raw "/api/v1/namespaces/$1/services/agents-metrics:metrics/proxy/metrics")
    grep -q '^jangar_control_plane_mutations_total{action="agent_run.created",outcome="done"} 1$' <<<"$said" || die "the submission was not counted: $said"
}

# claimed NAMESPACE USER VALUE: shows the API server a run, as this user, that says so of its creator.
claimed() {
    printf '{"apiVersion":"agents.proompteng.ai/v1alpha1","kind":"AgentRun","metadata":{"name":"claimed","annotations":{"jangar.proompteng.ai/created-by":"%s"}},"spec":{"agentRef":{"name":"minimal"},"implementation":{"inline":{"text":"x"}},"runtime":{"type":"job"}}}' "$3" |
        kubectl -n "$1" --as "$2" create --dry-run=server -f - 2>&1
}

# nobody_speaks_for_another NAMESPACE: who made a run is the word of the one who did. After through_the_control_plane, which makes a caller.
nobody_speaks_for_another() {
    local starter="system:serviceaccount:$1:starter" said run
    ! said=$(claimed "$1" "$starter" ada) || die "somebody made a run in the name of another: $said"
    [[ "$said" == *"is 'ada': it says who made the run"* ]] || die "it was refused with other words: $said"
    said=$(claimed "$1" "$starter" "$starter") || die "nobody can say that they made a run: $said"
    run=$(kubectl -n "$1" get agentruns -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.annotations.jangar\.proompteng\.ai/created-by}{"\n"}{end}' | sed -n "s/ $starter\$//p" | head -n 1)
    [[ -n "$run" ]] || die "the control plane does not write who made a run"
    ! said=$(kubectl -n "$1" --as "$starter" annotate agentrun "$run" --overwrite jangar.proompteng.ai/created-by=ada 2>&1) || die "who made $run was changed: $said"
    kubectl -n "$1" --as "$starter" label agentrun "$run" checked=yes >/dev/null || die "a run can be changed no more"
}

# somebody_at_a_terminal NAMESPACE: agentctl with the rights of whoever has the kubeconfig, and with a token at the Service of the control plane.
somebody_at_a_terminal() {
    local viewer status=0 patience=$((SECONDS + 120)) kube=(--kube -n "$1") plane=()
    agentctl "${kube[@]}" list runs >"$work/said"
    grep -Eq '^minimal .*Succeeded' "$work/said" || die "agentctl list does not tell of the run: $(<"$work/said")"
    [[ "$(agentctl "${kube[@]}" get run minimal -o jsonpath='{.status.phase}')" == Succeeded ]] || die "agentctl get tells another phase"
    agentctl "${kube[@]}" explain run minimal >"$work/said"
    grep -q 'succeeded' "$work/said" || die "agentctl explain does not say how the run ended: $(<"$work/said")"
    agentctl "${kube[@]}" logs minimal >"$work/said"
    grep -q 'working on example/adder' "$work/said" || die "agentctl logs does not show what the pod wrote: $(<"$work/said")"
    agentctl "${kube[@]}" doctor >"$work/said" || die "agentctl doctor finds something wrong in what was just installed: $(<"$work/said")"
    grep -q ' leads' "$work/said" || die "agentctl doctor does not say who leads: $(<"$work/said")"

    viewer=$(kubectl -n "$1" create token reader)
    plane=(--grpc --no-tls --server "$(grpc_of "$1")" --token "$viewer" -n "$1")
    until agentctl "${plane[@]}" list runs >"$work/said" 2>&1; do
        ((SECONDS < patience)) || die "agentctl cannot list at the control plane: $(<"$work/said")"
        sleep 0.5
    done
    grep -Eq '^minimal .*Succeeded' "$work/said" || die "agentctl list at the control plane does not tell of the run: $(<"$work/said")"
    agentctl "${plane[@]}" run --agent minimal --runtime job --text 'Say it.' --param repository=example/adder >"$work/said" 2>&1 || status=$?
    [[ "$status" == 4 ]] || die "who may only look started a run with agentctl, or was refused with code $status: $(<"$work/said")"
    grep -q 'may not create' "$work/said" || die "agentctl does not say which right is missing: $(<"$work/said")"
}

# database_is NAMESPACE UP: waits until the control plane says 1, or 0, of its database.
database_is() {
    local patience=$((SECONDS + 90))
    until kubectl get --raw "/api/v1/namespaces/$1/services/agents-metrics:metrics/proxy/metrics" | grep "^jangar_control_plane_database_up $2\$" >/dev/null; do
        ((SECONDS < patience)) || die "the control plane does not say $2 of its database"
        sleep 0.5
    done
}

# the_history_is_kept_in_postgres NAMESPACE: a run that is gone is told with the end of its log, also after the database was away.
the_history_is_kept_in_postgres() {
    local viewer uid away said patience=$((SECONDS + 180))
    database_is "$1" 1
    viewer=$(kubectl -n "$1" create token reader)
    uid=$(kubectl -n "$1" get agentrun minimal -o jsonpath='{.metadata.uid}')
    kubectl -n "$1" delete agentrun minimal --timeout="$limit" >/dev/null
    until said=$(ask "$viewer" GET "/v1/runs/$uid") && [[ "$said" == *'"archived":true'* && "$said" == *Succeeded* ]]; do
        ((SECONDS < patience)) || die "a run that is gone is not told from history: $said"
        sleep 0.5
    done
    kill -INT "$postgres_process"
    wait "$postgres_process" || true
    database_is "$1" 0
    # A run that ends and is deleted meanwhile is held until it is written.
    start_run "$1" away 10
    succeeds "$1" away
    away=$(kubectl -n "$1" get agentrun away -o jsonpath='{.metadata.uid}')
    patience=$((SECONDS + 60))
    until [[ "$(kubectl -n "$1" get agentrun away -o jsonpath='{.metadata.finalizers}')" == *agents.proompteng.ai/archive* ]]; do
        ((SECONDS < patience)) || die "a run that cannot be archived is not held: $(kubectl -n "$1" get agentrun away -o yaml)"
        sleep 0.5
    done
    kubectl -n "$1" delete agentrun away --wait=false >/dev/null
    # Long enough for a controller that would let it go to do so.
    sleep 3
    [[ -n "$(kubectl -n "$1" get agentrun away -o jsonpath='{.metadata.deletionTimestamp}')" ]] || die "a run that cannot be archived went when it was deleted"
    run_postgres
    database_is "$1" 1
    kubectl -n "$1" wait agentrun/away --for=delete --timeout="$limit"
    patience=$((SECONDS + 60))
    until said=$(ask "$viewer" GET "/v1/runs/$away") && [[ "$said" == *'"archived":true'* && "$said" == *Succeeded* ]]; do
        ((SECONDS < patience)) || die "a run that ended while the database was away is not told from history: $said"
        sleep 0.5
    done
    said=$(ask "$viewer" GET "/v1/runs/$uid/logs")
    [[ "$said" == '200 '* && "$said" == *'working on example/adder'* ]] || die "the end of the log of a run that is gone is not told: $said"
}

# commands_of_the_seeds NAMESPACE: each of docs/seeds.md that asks a cluster.
commands_of_the_seeds() {
    local kinds
    kubectl version >/dev/null
    kubectl get --raw /version >/dev/null
    [[ "$(kubectl -n "$1" auth can-i list deploy)" == yes ]] || die "an admin may not list Deployments"
    kubectl get ns | grep "^$1 " >/dev/null || die "the namespace is not listed"
    kubectl -n "$1" get deploy,rs,pods,svc -o wide >"$work/said"
    grep -q 'deployment.apps/agents-controllers' "$work/said" || die "the workloads are not listed: $(<"$work/said")"
    kubectl rollout status -n "$1" deploy/agents
    kubectl rollout status -n "$1" deploy/agents-controllers
    [[ -n "$(kubectl -n "$1" logs deploy/agents --tail=200)" && -n "$(kubectl -n "$1" logs deploy/agents-controllers --tail=200)" ]] || die "a workload logs nothing"
    kinds=$(kubectl get crd | grep -c 'proompteng\.ai')
    ((kinds >= 19)) || die "there are $kinds kinds"
    kubectl -n "$1" get agentproviders.agents.proompteng.ai,agents.agents.proompteng.ai,versioncontrolproviders.agents.proompteng.ai
    kubectl -n "$1" get approvalpolicies.approvals.proompteng.ai,budgets.budgets.proompteng.ai,signals.signals.proompteng.ai
    kubectl -n "$1" get orchestration -o yaml | grep -Eq 'steps:|dependsOn' || die "no orchestration has steps"
    kubectl -n "$1" patch orchestrationrun release-1 --type=merge -p '{"spec":{"cancel":true}}'
    kubectl -n "$1" get orchestrationrun release-1 -o yaml | grep -Eq 'Cancelled|phase' || die "an orchestration run has no phase"
}

# a_gate_is_opened NAMESPACE: by two accounts, because one who has decided does not count twice.
a_gate_is_opened() {
    local each token said digest patience
    sed "s|name: release-managers\$|name: system:serviceaccounts:$1|; s|policyRef: .*|policyRef: managers|; /^kind: ApprovalPolicy/,/^spec:/s|name: .*|name: managers|" \
        charts/agents/examples/release-with-gate.yaml | kubectl -n "$1" apply -f - >/dev/null
    kubectl -n "$1" wait orchestrationrun/release-1 --for=jsonpath='{.status.stepStatuses[0].phase}'=Running --timeout="$limit"
    digest=$(kubectl -n "$1" get orchestrationrun release-1 -o jsonpath='{.status.stepStatuses[0].waitsFor.digest}')
    token=$(kubectl -n "$1" create token starter)
    said=$(ask "$token" POST "/v1/approvals/$1/release-1/ask/approve" none "{\"digest\":\"$digest\"}")
    [[ "$said" == '403 '* && "$said" == *'verb approve'* ]] || die "who may start runs may also decide: $said"
    for each in one two; do
        token=$(caller "$1" "approver-$each" approver)
        patience=$((SECONDS + 90))
        until said=$(ask "$token" GET "/v1/approvals?namespace=$1") && [[ "$said" == *"$digest"* ]]; do
            ((SECONDS < patience)) || die "who may decide does not see what waits: $said"
            sleep 0.5
        done
        case $each in
            one)
                said=$(ask "$token" POST "/v1/approvals/$1/release-1/ask/approve" none "{\"digest\":\"$digest\"}")
                [[ "$said" == '200 '* ]] || die "the decision was not taken: $said"
                ;;
            two)
                said=$(agentctl --grpc --no-tls --server "$(grpc_of "$1")" --token "$token" -n "$1" approvals -o json)
                [[ "$said" == *"$digest"* ]] || die "agentctl does not list the gate: $said"
                said=$(agentctl --grpc --no-tls --server "$(grpc_of "$1")" --token "$token" -n "$1" approve release-1 ask --digest "$digest")
                [[ "$said" == *"approved, as system:serviceaccount:$1:approver-two" ]] || die "agentctl does not say what was decided: $said"
                ;;
        esac
    done
    kubectl -n "$1" wait orchestrationrun/release-1 --for=jsonpath='{.status.phase}'=Succeeded --timeout="$limit"
}

# a_delivery_of_a_forge_is_taken NAMESPACE HELM: with the rights that this takes, which the control plane does not have before it is asked for.
a_delivery_of_a_forge_is_taken() {
    local said patience reader="system:serviceaccount:$1:agents-control-plane"
    [[ "$(kubectl -n "$1" auth can-i get secrets/forge --as "$reader" || true)" == no ]] || die "the control plane may read Secrets, and webhooks are off"
    "$2" upgrade agents charts/agents --namespace "$1" --reuse-values --set controlPlane.webhooks.enabled=true --set 'controlPlane.webhooks.secrets={forge}' >/dev/null
    installed_in "$1"
    may "$reader" "$1" get secrets/forge
    patience=$((SECONDS + 90))
    kubectl -n "$1" create secret generic forge --from-literal=token=a-secret-of-the-forge >/dev/null
    kubectl -n "$1" apply -f - >/dev/null <<'YAML'
apiVersion: agents.proompteng.ai/v1alpha1
kind: ImplementationSource
metadata: {name: adder}
spec:
  provider: github
  auth: {secretRef: {name: forge}}
  webhook: {enabled: true}
  scope: {repository: example/adder}
YAML
    # Before the control plane has seen the source it knows none, and whoever sends tries again.
    until said=$(python3 tests/chart/deliver.py "http://$service" a-secret-of-the-forge) && [[ "$said" == '200 '* ]]; do
        ((SECONDS < patience)) || die "the delivery of a forge was not taken: $said"
        sleep 0.5
    done
    [[ "$said" == *'"synced":1'* ]] || die "the delivery was taken, and nothing came of it: $said"
    kubectl -n "$1" get implementationspec example-adder-7-impl >/dev/null || die "the issue became no ImplementationSpec"
}

# all_rights_are_used NAMESPACE: after what only happens now and then: a look at who leads, and at objects that are not in a cache.
all_rights_are_used() {
    local token kind kinds said
    token=$(kubectl -n "$1" create token reader)
    said=$(ask "$token" GET "/api/agents/control-plane/status?namespace=$1")
    [[ "$said" == '200 '* && "$said" == *'"holder":"agents-controllers-'* ]] || die "the status does not say who leads: $said"
    mapfile -t kinds < <(sed -n 's/^    kind: //p' charts/agents/crds/*.yaml)
    for kind in "${kinds[@]}"; do
        said=$(ask "$token" GET "/api/agents/control-plane/resource?kind=$kind&name=nowhere&namespace=$1")
        [[ "$said" == '404 '* ]] || die "$kind nowhere is told to be there: $said"
    done
    kubectl -n "$1" get role agents-control-plane agents-control-plane-lease -o json |
        python3 tests/chart/rights.py "$JANGAR_TEST_CLUSTER/audit.log" "system:serviceaccount:$1:agents-control-plane" "$1"
}

# an_upgrade_while_a_run_works NAMESPACE HELM
an_upgrade_while_a_run_works() {
    start_run "$1" long 15
    "$2" upgrade agents charts/agents --namespace "$1" --reuse-values --set logging.level=debug --set controller.queue.cluster=0 >/dev/null
    installed_in "$1"
    succeeds "$1" long
}

# in_one_workload NAMESPACE HELM: the control plane does the work of the controllers as well, with the rights of both, and gives it back.
in_one_workload() {
    "$2" upgrade agents charts/agents --namespace "$1" --reuse-values --set controllers.enabled=false >/dev/null
    kubectl -n "$1" rollout status deployment/agents --timeout="$limit"
    start_run "$1" alone 10
    succeeds "$1" alone
    "$2" upgrade agents charts/agents --namespace "$1" --reuse-values --set controllers.enabled=true >/dev/null
    installed_in "$1"
}

# with_a_certificate_and_an_account_of_runs NAMESPACE HELM: HTTP and gRPC are encrypted behind their Services, and the pods of runs have a token.
with_a_certificate_and_an_account_of_runs() {
    local http grpc token patience
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=agents -keyout "$work/tls.key" -out "$work/tls.crt" 2>/dev/null
    kubectl -n "$1" create secret tls served --cert="$work/tls.crt" --key="$work/tls.key" >/dev/null
    "$2" upgrade agents charts/agents --namespace "$1" --reuse-values --set controlPlane.tls.secret.name=served \
        --set runnerServiceAccount.create=true --set runnerServiceAccount.rbac.create=true >/dev/null
    installed_in "$1"
    patience=$((SECONDS + 90))
    http=$(service_of "$1") grpc=$(kubectl -n "$1" get service agents-grpc -o jsonpath='{.spec.clusterIP}:{.spec.ports[0].port}')
    # For some seconds a pod on its way out may still answer without.
    until encrypted "$http" "$grpc" 2>"$work/said"; do
        ((SECONDS < patience)) || die "HTTP or gRPC is not encrypted behind its Service: $(<"$work/said")"
        sleep 0.5
    done
    start_run "$1" with-token 10
    kubectl -n "$1" wait pod -l agents.proompteng.ai/agent-run=with-token --for=create --timeout="$limit" >/dev/null
    token=$(kubectl -n "$1" get pods -l agents.proompteng.ai/agent-run=with-token -o jsonpath='{.items[0].spec.volumes[*].projected.sources[*].serviceAccountToken.path}')
    [[ -n "$token" ]] || die "the pod of a run has no token, although its account has rights"
    succeeds "$1" with-token
}

# encrypted HTTP GRPC: whether both addresses answer in their protocols behind TLS.
encrypted() {
    python3 - "$1" "$2" <<'PYTHON'
import socket, ssl, sys
context = ssl.create_default_context()
# Whose certificate it is, is not the question here.
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for address, protocol, said, expected in (
    (sys.argv[1], "http/1.1", b"GET /health HTTP/1.1\r\nHost: agents\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200"),
    # What a client of HTTP/2 begins with; the answer begins with settings as well.
    (sys.argv[2], "h2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), None),
):
    context.set_alpn_protocols([protocol])
    host, port = address.rsplit(":", 1)
    with context.wrap_socket(socket.create_connection((host, int(port)), timeout=10)) as stream:
        stream.sendall(said)
        answer = stream.recv(64)
        assert answer.startswith(expected) if expected else answer[3] == 4, (address, answer)
PYTHON
}

# load NAMESPACE PHASE: how many of the runs of the load have this phase; `Pending` is also who has none yet.
load() {
    kubectl -n "$1" get agentruns -o jsonpath='{range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}' |
        awk -v phase="$2" '/^load-/ && (NF == 1 ? "Pending" : $2) == phase { count++ } END { print count + 0 }'
}

# takes NAMESPACE SECONDS: how long a run of the agent `minimal` takes that is started from now on.
takes() { kubectl -n "$1" patch agentprovider minimal --type=merge --patch "{\"spec\":{\"argsTemplate\":[\"-c\",\"sleep $2; echo working on {{ parameters.repository }}\"]}}" >/dev/null; }

# another_image_while_runs_come_and_go NAMESPACE HELM: more runs than may go at once, so that some wait and some work while every pod is replaced and somebody
# else begins to lead, and more that are submitted meanwhile. None is lost, and none is started twice.
another_image_while_runs_come_and_go() {
    local each before=8 during=6 names submitter leader now patience=$((SECONDS + 120))
    # Longer than all that comes before somebody else leads: then they are ended.
    takes "$1" 600
    for ((each = 1; each <= before; each++)); do
        sed -e 's|docker.io/library/busybox:.*|jangar.test/busybox:1|' -e "s|^  name: minimal$|  name: load-$each|" charts/agents/examples/minimal.yaml |
            awk -v RS='---\n' '/kind: AgentRun\n/ { print "---\n" $0 }'
    done | kubectl -n "$1" apply -f - >/dev/null
    until (($(load "$1" Running) > 0)); do
        ((SECONDS < patience)) || die "no run of the load has begun"
        sleep 0.5
    done
    leader=$(leader_in "$1")
    [[ -n "$leader" ]] || die "nobody leads before the upgrade"
    "$2" upgrade agents charts/agents "${somebody[@]}" --namespace "$1" --reuse-values --set image.tag=another --set logging.level=debug >/dev/null
    submitter=$(kubectl -n "$1" create token starter)
    for ((each = 1; each <= during; each++)); do
        [[ "$(ask "$submitter" POST /v1/agent-runs "during-$each" "$(submission "$1" example/adder)")" == 20[01]' '* ]] || die "submission $each was not taken during the upgrade"
    done
    patience=$((SECONDS + 120))
    until now=$(leader_in "$1") && [[ -n "$now" && "$now" != "$leader" ]]; do
        ((SECONDS < patience)) || die "nobody else leads after the upgrade: $now"
        sleep 0.2
    done
    (($(load "$1" Running) > 0 && $(load "$1" Pending) > 0)) || die "when somebody else began to lead, no run was at work or none waited: $(kubectl -n "$1" get agentruns)"
    # The others need not take as long, and these have taken long enough. One that is about to begin is ended in the next round.
    takes "$1" 0
    patience=$((SECONDS + 120))
    until [[ "$(load "$1" Succeeded)" == "$before" ]]; do
        ((SECONDS < patience)) || die "the runs of the load do not end: $(kubectl -n "$1" get agentruns)"
        for each in $(kubectl -n "$1" get pods -l agents.proompteng.ai/agent-run --field-selector=status.phase=Running -o name); do
            kubectl -n "$1" exec "$each" -- killall sleep >/dev/null 2>&1 || true
        done
        sleep 0.5
    done
    installed_in "$1"
    [[ "$(kubectl -n "$1" get pods -l app.kubernetes.io/part-of=jangar -o go-template='{{range .items}}{{if not .metadata.deletionTimestamp}}{{(index .spec.containers 0).image}}{{"\n"}}{{end}}{{end}}' | sort -u)" == jangar.test/jangar:another ]] ||
        die "pods of the old image are left"
    # minimal, first, and these.
    names=$(kubectl -n "$1" get agentruns -o name)
    [[ "$(wc -l <<<"$names")" == $((2 + before + during)) ]] || die "runs were lost or made twice: $names"
    for each in $names; do succeeds "$1" "${each#*/}"; done
}

# What the API server says of objects that no schema can say: rules in CEL, names, what contradicts itself.
dry_run() {
    local values name=$1 helm=$2 kustomize kinds named each
    say "every values file, both Applications and every example are shown to the API server"
    namespaces+=("$name")
    kubectl create namespace "$name" >/dev/null
    kustomize=$(scripts/tools.sh kustomize)
    # The kinds of others, which go again: who tests that they are missing counts on it.
    mapfile -t kinds < <(source scripts/agents/lib.sh &&
        printf '%s\n' "$(module rollouts github.com/argoproj/argo-rollouts)/manifests/crds/rollout-crd.yaml" \
            "$(module schemas github.com/prometheus-operator/prometheus-operator)"/example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml)
    for each in "${kinds[@]}"; do
        kubectl apply --server-side --force-conflicts -f "$each" >/dev/null
        established -f "$each"
    done
    for values in charts/agents/ci/*-values.yaml argocd/applications/agents argocd/applications/jangar; do
        if [[ -d "$values" ]]; then
            "$kustomize" build --enable-helm --helm-command "$helm" "$values" >"$work/known.yaml"
        else
            "$helm" template agents charts/agents --namespace "$name" --values "$values" >"$work/known.yaml"
        fi
        # A dry run makes no namespace for the objects after it.
        mapfile -t named < <(sed -n 's/^  namespace: //p' "$work/known.yaml" | sort -u)
        for each in "${named[@]}"; do
            kubectl get namespace "$each" >/dev/null 2>&1 || { kubectl create namespace "$each" >/dev/null && namespaces+=("$each"); }
        done
        # Kinds are there already, and belong to somebody else.
        kubectl apply --server-side --force-conflicts --dry-run=server -f "$work/known.yaml" >"$work/said" || die "the API server refuses what $values renders"
        echo "$values: $(wc -l <"$work/said") objects accepted"
    done
    kubectl -n "$name" apply --server-side --dry-run=server -f charts/agents/examples >"$work/said" || die "the API server refuses an example"
    echo "charts/agents/examples: $(wc -l <"$work/said") objects accepted"
    for each in "${kinds[@]}"; do kubectl delete --wait=false -f "$each" >/dev/null; done
}

prepare_image
say "the image of runners, and another one"
tests/cluster/bench.sh import "${archive%/*}/agent-runner-dev.tar"
python3 tests/chart/another_image.py "$archive" jangar.test/jangar:another "$work/another.tar"
tests/cluster/bench.sh import "$work/another.tar"
say "a database"
start_postgres
for major in 3 4; do
    # What does not depend on Helm is checked once.
    case $major in
        3) checks=(kinds_are_those_of_the_program the_image_of_runners_runs somebody_at_a_terminal nobody_speaks_for_another a_gate_is_opened commands_of_the_seeds a_delivery_of_a_forge_is_taken all_rights_are_used
            an_upgrade_while_a_run_works nothing_was_refused in_one_workload the_history_is_kept_in_postgres
            with_a_certificate_and_an_account_of_runs) ;;
        4) checks=(another_image_while_runs_come_and_go nothing_was_refused) ;;
    esac
    installed "$(scripts/tools.sh "helm$major")" "helm$major" "${checks[@]}"
done
dry_run "chart-dry-$RANDOM" "$(scripts/tools.sh helm3)"
say "all is well"
