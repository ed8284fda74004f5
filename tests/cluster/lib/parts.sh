# Starting, stopping and awaiting the parts of a bench, from within it. It is sourced.
# shellcheck shell=bash

# start PART: every part is a function run_PART that becomes the program. What it says goes to a file, and the two pipes of
# the boot are not for it: it would keep them open for ever.
start() {
    mkdir -p "$state/log" "$state/pid"
    ("run_${1//-/_}") >>"$state/log/$1.log" 2>&1 </dev/null 8>&- &
    echo $! >"$state/pid/$1"
}

# stop PART: asks it to end, and makes it end if it does not listen.
stop() {
    local pid try
    pid=$(<"$state/pid/$1") || die "$1 is not running"
    rm -f "$state/pid/$1"
    kill -TERM "$pid" 2>/dev/null || return 0
    for ((try = 0; try < 100; try++)); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
}

# until_true SECONDS WHAT COMMAND ...: tries until the command succeeds; the bound is far beyond what a slow machine takes.
until_true() {
    local seconds=$1 what=$2 try
    shift 2
    for ((try = 0; try < seconds * 20; try++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    die "after $seconds seconds $what; see $state/log"
}

listens() { : <"/dev/tcp/$1/$2"; }
kubectl() { "$KUBE" kubectl --kubeconfig="$admin_kubeconfig" "$@"; }
