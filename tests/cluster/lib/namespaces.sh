# The namespaces that a bench lives in: made with its first process, entered by its clients, gone with it. It is sourced.
# shellcheck shell=bash
#
# The whole bench is the tree of one process in a pid namespace. The kernel ends every process of such a namespace with its
# first one, and the mount and the network namespace go when nobody is in them any more: ending one process that this script
# has started takes down all of it, pods included, whatever state it is in.

# Root makes the namespaces as itself. Anybody else gets a user namespace around them, in which they are root; that is
# enough for everything but a real node.
own_user=()
((EUID == 0)) || own_user=(--user)

# started PID: when a process was started, which tells it from a later one with the same pid. One that has ended and is only
# waited for has no more such time.
started() {
    local line
    { line=$(<"/proc/$1/stat"); } 2>/dev/null || return
    # The name of the program may hold blanks and brackets, so what counts begins after the last bracket.
    read -ra line <<<"${line##*) }"
    [[ "${line[0]}" == Z ]] || echo "${line[19]}"
}

# Whether the bench has a first process; sets `pid`.
is_alive() {
    local since
    pid=
    { read -r pid since <"$first_process"; } 2>/dev/null && [[ "$(started "$pid")" == "$since" ]]
}

is_up() { is_alive && [[ -e "$booted" ]]; }

# Becomes COMMAND in the network of the bench, with the machine's own files and processes.
enter_network() {
    is_alive || die "the bench is not up: make cluster-up"
    exec nsenter --target "$pid" "${own_user[@]}" "${own_user[@]:+--preserve-credentials}" --net -- "$@"
}

# Runs COMMAND inside the bench in every respect.
inside() {
    is_alive || die "the bench is not up: make cluster-up"
    nsenter --target "$pid" "${own_user[@]}" "${own_user[@]:+--preserve-credentials}" --net --mount --pid -- "$@"
}

# Ends the bench and removes all it left, also what a bench left that did not boot to its end.
tear_down() {
    local each try
    if is_alive; then
        kill -KILL "$pid"
        for ((try = 0; try < 300; try++)); do
            is_alive || break
            sleep 0.1
        done
        ! is_alive || die "the first process of the bench ($pid) does not end; a process below it hangs in the kernel"
    fi
    # Cgroups outlive their processes. The last of those may still be on the way out, when a cgroup is busy.
    for each in "$hierarchy$cgroup" "$hierarchy"/*"$cgroup"; do
        [[ -d "$each" ]] || continue
        for ((try = 0; try < 50; try++)); do
            find "$each" -depth -type d -exec rmdir {} + 2>/dev/null && break
            sleep 0.1
        done
        [[ ! -d "$each" ]] || say "left behind, because something is still in it: $each"
        # The one above goes with the last bench.
        rmdir "${each%/*}" 2>/dev/null || true
    done
    rm -rf "$state"
}
