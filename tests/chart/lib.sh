# What the tests of the chart on a real Kubernetes share. It is sourced, inside a bench.
# shellcheck shell=bash disable=SC2034 # Names are used where this is sourced.

test=$(basename "$0" .sh)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
[[ -n "${JANGAR_TEST_CLUSTER:-}" ]] || { echo "$test: run it inside a bench: tests/cluster/bench.sh run tests/chart/$test.sh" >&2 && exit 1; }
archive=${JANGAR_TEST_IMAGE:-$root/target/image/jangar-dev.tar}
# No wait is longer; what is waited for takes seconds on a quiet machine.
limit=180s
work=$(mktemp -d)
# Namespaces that are removed at the end, and processes that are ended then.
namespaces=() processes=()
step=beginning
# The address of the control plane that `ask` asks.
service=
trap told EXIT

# What is known when something failed, and the way back.
told() {
    local status=$? each
    for each in "${processes[@]}"; do kill "$each" 2>/dev/null || true; done
    for each in "${namespaces[@]}"; do
        if ((status != 0)); then
            echo "$test: failed while $step; $each has:" >&2
            kubectl -n "$each" get all,agentruns,leases -o wide >&2 || true
            kubectl -n "$each" describe pods >&2 || true
            kubectl -n "$each" logs --prefix --tail=40 --selector app.kubernetes.io/part-of=jangar >&2 || true
        fi
        kubectl delete namespace "$each" --wait=false >/dev/null 2>&1 || true
    done
    # What was just told to end may still write there.
    rm -rf "$work" 2>/dev/null || true
    exit "$status"
}

say() {
    step=$*
    printf -- '-- %s\n' "$*"
}
die() {
    echo "$test: $*" >&2
    exit 1
}

# What is particular to the bench: its image, which cannot be pulled, and its one real node.
cat >"$work/bench.yaml" <<'YAML'
image: {repository: jangar.test/jangar, tag: dev, pullPolicy: Never}
nodeSelector: {jangar.test/node: real}
controllers: {replicaCount: 2}
rbac: {userRoles: {create: true}}
podDisruptionBudget: {enabled: true}
networkPolicy: {enabled: true}
# Ready as soon as can be: the tests wait for it.
readinessProbe: {initialDelaySeconds: 0, periodSeconds: 1}
minReadySeconds: 0
controller:
  defaultWorkload: {nodeSelector: {jangar.test/node: real}}
YAML

# Gives the image of this checkout to the real node.
prepare_image() {
    say "the image"
    [[ -f "$archive" ]] || die "$archive is not there: make cluster-image"
    tests/cluster/bench.sh import "$archive"
}

# established ARGUMENTS: waits until the kinds that kubectl finds by these arguments are served. A kind that was made this moment has
# null for its conditions, and `kubectl wait --for=condition` fails over that instead of waiting: so first until there are any.
established() {
    kubectl wait "$@" --for=jsonpath='{.status.conditions[0].type}' --timeout="$limit" >/dev/null
    kubectl wait "$@" --for=condition=Established --timeout="$limit" >/dev/null
}

# Gives the image of this checkout to the real node, and the kinds to the cluster.
prepare() {
    prepare_image
    say "the kinds"
    kubectl apply --server-side --force-conflicts -f charts/agents/crds >/dev/null
    established crd --all
}

# may USER NAMESPACE VERB KIND: waits until a right counts, which it does a moment after it is given.
may() {
    local patience=$((SECONDS + 90))
    until [[ "$(kubectl -n "$2" auth can-i "$3" "$4" --as "$1" || true)" == yes ]]; do
        ((SECONDS < patience)) || die "$1 may not $3 $4"
        sleep 0.5
    done
}

# start_postgres: a database in the network of the bench; sets `database` to its address as pods reach it. There is no DNS, so it is
# one of the node.
start_postgres() {
    local programs address as=() directory=$work/postgres port=15432
    programs=$(scripts/tools.sh postgres)
    mkdir "$directory"
    # It does not run as root.
    if ((EUID == 0)); then
        as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
        chmod 711 "$work"
        chown nobody "$directory"
    fi
    "${as[@]}" "$programs/initdb" --username=jangar --auth=trust --encoding=UTF8 --no-locale --no-sync "$directory/data" >/dev/null
    echo 'host all all all trust' >>"$directory/data/pg_hba.conf"
    postgres=("${as[@]}" "$programs/postgres" -D "$directory/data" -p "$port" -c listen_addresses='*' -c unix_socket_directories="$directory" -c fsync=off)
    is_ready=("$programs/pg_isready" --quiet --host=127.0.0.1 --port="$port")
    run_postgres
    address=$(kubectl get node -l jangar.test/node=real -o jsonpath='{.items[0].status.addresses[?(@.type=="InternalIP")].address}')
    database="postgres://jangar@$address:$port/postgres?sslmode=disable"
}

# run_postgres: starts the server that `start_postgres` has made, and sets `postgres_process`.
run_postgres() {
    local patience=$((SECONDS + 60))
    "${postgres[@]}" >>"$work/postgres.log" 2>&1 &
    postgres_process=$!
    processes+=("$postgres_process")
    until "${is_ready[@]}"; do
        ((SECONDS < patience)) || die "Postgres does not start: $(<"$work/postgres.log")"
        sleep 0.2
    done
}

# leader_in NAMESPACE: whoever leads there, or nothing.
leader_in() { kubectl -n "$1" get lease jangar-controller-leader -o jsonpath='{.spec.holderIdentity}'; }

# installed_in NAMESPACE: both workloads are there.
installed_in() {
    local each
    for each in agents agents-controllers; do kubectl -n "$1" rollout status "deployment/$each" --timeout="$limit"; done
}

# caller NAMESPACE NAME ROLE: makes an account that may do what a role for people says, and prints a token of it.
caller() {
    kubectl -n "$1" create serviceaccount "$2" >/dev/null
    kubectl -n "$1" create rolebinding "$2" --role="agents-$3" --serviceaccount="$1:$2" >/dev/null
    kubectl -n "$1" create token "$2"
}

# ask TOKEN METHOD PATH [KEY BODY]: asks the control plane of `$service`, which is its address; prints the code and the body. The
# network of the bench has the addresses of Services.
ask() { python3 tests/chart/call.py "$1" "$2" "http://$service$3" "${@:4}"; }

# agentctl ARGUMENT ...: the program of this checkout, without what whoever runs the test has configured.
agentctl() {
    local program=${CARGO_TARGET_DIR:-target}/debug/agentctl
    [[ -x "$program" ]] || die "$program is not there: cargo build --workspace --bin agentctl"
    env -u AGENTCTL_KUBECONFIG -u AGENTCTL_CONTEXT -u AGENTCTL_TOKEN -u AGENTCTL_NAMESPACE -u AGENTCTL_SERVER \
        XDG_CONFIG_HOME="$work/config" "$program" --no-input "$@"
}

# grpc_of NAMESPACE: where its control plane answers agentctl.
grpc_of() { kubectl -n "$1" get service agents-grpc -o jsonpath='{.spec.clusterIP}:{.spec.ports[0].port}'; }

# service_of NAMESPACE: the address of its control plane.
service_of() { kubectl -n "$1" get service agents -o jsonpath='{.spec.clusterIP}:{.spec.ports[0].port}'; }

# submission NAMESPACE SCRIPT: a run of the agent `minimal`, as the control plane takes it.
submission() {
    printf '{"agentRef":{"name":"minimal"},"namespace":"%s","runtime":{"type":"job"},"implementation":{"text":"Say it."},"parameters":{"repository":"%s"},"workload":{"image":"jangar.test/busybox:1"}}' "$1" "$2"
}

# start_run NAMESPACE NAME SECONDS: the smallest example under another name, which takes its time. The bench has a busybox of its own.
start_run() {
    sed -e 's|docker.io/library/busybox:.*|jangar.test/busybox:1|' -e "s|name: minimal$|name: $2|" -e "s|echo working on|sleep $3; echo working on|" \
        charts/agents/examples/minimal.yaml | kubectl -n "$1" apply -f - >/dev/null
    kubectl -n "$1" wait "agentrun/$2" --for=jsonpath='{.status.phase}'=Running --timeout="$limit"
}

# works NAMESPACE NAME: the run is still under way.
works() { [[ "$(kubectl -n "$1" get agentrun "$2" -o jsonpath='{.status.phase}')" == Running ]] || die "the run $2 is not under way any more, so that nothing was shown with it"; }

# finish NAMESPACE NAME: has a run of `start_run` end before its time.
finish() { kubectl -n "$1" exec "$(kubectl -n "$1" get pods -l "agents.proompteng.ai/agent-run=$2" -o name)" -- killall sleep; }

# succeeds NAMESPACE NAME: the run ends well, and was started once.
succeeds() {
    kubectl -n "$1" wait "agentrun/$2" --for=jsonpath='{.status.phase}'=Succeeded --timeout="$limit"
    [[ "$(kubectl -n "$1" get pods -l "agents.proompteng.ai/agent-run=$2" --no-headers | wc -l)" == 1 ]] || die "the run $2 was started more than once"
}
