#!/usr/bin/env bash
# A real Kubernetes for the tests: etcd, the control plane, fake nodes in three zones and, with root, one real node, in
# namespaces of their own. docs/testing.md says more.
#
#   bench.sh build               builds and fetches all that a bench is made of
#   bench.sh up                  boots it and leaves it up
#   bench.sh run COMMAND ...     runs a command in its network; a bench that is not up is booted for as long as that takes
#   bench.sh alone COMMAND ...   the same on a bench that is booted for this command, whatever else is up
#   bench.sh shell               the same as run, with a shell
#   bench.sh down                ends it and removes what it left
#   bench.sh stop|start PART     ends or starts one part of a bench that is up, such as kube-apiserver
#   bench.sh import FILE ...     gives images, as OCI archives, to the real node
set -euo pipefail

[[ "$(uname -s)" == Linux ]] || { echo "bench: the bench needs Linux: it is made of Linux namespaces" >&2 && exit 1; }

here=$(dirname "${BASH_SOURCE[0]}")
source "$here/lib/base.sh"
source "$here/lib/namespaces.sh"
source "$here/lib/real-node.sh"

# What is left of a bench that did not boot, and what tests write down when they fail.
reports=$root/target/cluster
# What a bench takes for etcd, logs and the layers of a few images.
state_megabytes=1000
# Five seconds on a quiet machine; this is for one that also compiles.
boot_seconds=180

# What tests use beside the bench. It is built ahead, because in the network of a bench nothing can be fetched.
tools=(rollouts helm3 helm4 kustomize kubeconform)

need() { command -v "$1" >/dev/null || die "$1 is not installed (Debian: apt-get install $2)"; }

build() {
    need unshare util-linux
    need nsenter util-linux
    need flock util-linux
    need openssl openssl
    KUBE=$("$root/scripts/tools.sh" kube)
    KWOK=$("$root/scripts/tools.sh" kwok)
    export KUBE KWOK
    obstacle=$(real_node_obstacle)
    NODE_PACKAGES=
    if [[ -z "$obstacle" ]]; then
        # Its last words say what is missing; they are shown now and told again to each suite that needs the node. They go
        # through a file, because a pipe would not be read to its end before they are needed.
        local words
        words=$(mktemp)
        NODE_PACKAGES=$("$cluster/lib/packages.sh" 2>"$words") || obstacle=$(tail -n 1 "$words")
        cat "$words" >&2
        rm -f "$words"
    fi
    # It is among the packages of the real node.
    [[ -n "$NODE_PACKAGES" ]] || need ip iproute2
    export NODE_PACKAGES
}

# Only one at a time boots or ends a bench. The lock is let go with the process, however it ends.
lock() {
    mkdir -p "$cache/bench"
    exec 9>>"$cache/bench/$bench.lock"
    flock --timeout "$boot_seconds" 9 ||
        die "another process boots or ends this bench and does not get done: pid $(tail -n 1 "$cache/bench/$bench.lock")"
    echo $$ >"$cache/bench/$bench.lock"
}
unlock() { exec 9>&-; }

# What the parts said goes with the bench, and it may be what explains a failure.
keep_logs() {
    rm -rf "$reports/bench"
    mkdir -p "$reports/bench"
    cp -r "$state/boot.log" "$state/log" "$reports/bench" 2>/dev/null || true
}

boot() {
    local free words answer='' begun=${EPOCHREALTIME/[.,]/}
    tear_down
    words=$(unshare "${own_user[@]}" --net --mount --pid --fork -- true 2>&1) ||
        die "this machine refuses to make namespaces ($words): be root with all its rights, or allow them to others (Debian: sysctl kernel.unprivileged_userns_clone=1, Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1024) }')
    ((free >= state_megabytes)) || die "a bench needs $state_megabytes MB in $cache, and $free MB are free there"
    mkdir -p "$state"
    [[ -n "$obstacle" ]] || obstacle=$(own_cgroups)
    if [[ -n "$obstacle" ]]; then
        echo "$obstacle" >"$no_real_node"
        NODE_PACKAGES=
    fi
    mkfifo "$state/boot"
    trap 'tear_down; exit 130' INT
    trap 'tear_down; exit 143' TERM
    # A session of its own, so that an interrupt from the keyboard does not reach half of the bench.
    setsid unshare "${own_user[@]}" "${own_user[@]:+--map-root-user}" --net --mount --pid --fork -- \
        "$cluster/inside.sh" boot >"$state/boot.log" 2>&1 </dev/null 8>"$state/boot" 9>&- 7>&- &
    # It ends in words when all is up, and without any when the first process ended before that.
    read -r -t "$boot_seconds" answer <"$state/boot" || true
    trap - INT TERM
    if [[ "$answer" != booted ]]; then
        keep_logs
        tail -n 5 "$state/boot.log" >&2
        tear_down
        die "the bench did not boot; what its parts said is in $reports/bench"
    fi
    local took=$(((${EPOCHREALTIME/[.,]/} - begun) / 1000))
    say "up in $((took / 1000)).$(printf %03d $((took % 1000))) s${obstacle:+, without a real node: $obstacle}"
}

up() {
    build
    lock
    is_up || boot
    touch "$kept"
    unlock
    say "it stays up until make cluster-down; make cluster-shell goes in"
}

down() {
    lock
    tear_down
    unlock
}

# Everybody who runs a command holds this lock together with the others, so that the last one out can tell that it is.
users() { flock "$@" 7; }

run() {
    local status=0
    build
    lock
    exec 7>>"$cache/bench/$bench.users"
    # A bench that nobody wanted to keep and nobody uses was left by a run that was killed: who knows in what state.
    if ! is_up || { [[ ! -e "$kept" ]] && users --exclusive --nonblock; }; then boot; fi
    users --shared
    unlock
    # An interrupt from the keyboard reaches the command as well. What is left to do here is to clean up after it.
    trap : INT TERM
    (
        trap - INT TERM
        enter_network env KUBECONFIG="$admin_kubeconfig" PATH="$(dirname "$KUBE"):$PATH" \
            JANGAR_TEST_CLUSTER="$state" JANGAR_TEST_REPORTS="$reports" JANGAR_TEST_OUTSIDE=$$ "$@" 7>&-
    ) || status=$?
    ((status == 0)) || keep_logs
    lock
    if [[ ! -e "$kept" ]] && users --exclusive --nonblock; then tear_down; fi
    exit "$status"
}

# A command within all namespaces, for a bench that is up.
within() {
    build
    is_up || die "the bench is not up: make cluster-up"
    inside "$cluster/inside.sh" "$@"
}

case ${1:-} in
    build)
        build
        for each in "${tools[@]}"; do "$root/scripts/tools.sh" "$each" >/dev/null; done
        ;;
    up) up ;;
    run) run "${@:2}" ;;
    alone) JANGAR_BENCH=$bench-alone exec "$cluster/bench.sh" run "${@:2}" ;;
    shell) run "${SHELL:-bash}" ;;
    down) down ;;
    start | stop) within "$1" "${2:?which part}" ;;
    import)
        [[ ! -e "$no_real_node" ]] || die "$(<"$no_real_node")"
        within "$@"
        ;;
    *) die "usage: bench.sh build | up | run COMMAND ... | alone COMMAND ... | shell | down | start PART | stop PART | import FILE ..." ;;
esac
