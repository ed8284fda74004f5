# The names, places and addresses that the scripts of the bench share. It is sourced, never run.
# shellcheck shell=bash disable=SC2034 # They are used where this is sourced.

cluster=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$(cd "$cluster/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/jangar

say() { printf 'bench: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Each checkout has a bench of its own, so that two work trees can be tested at once: what is installed in one cluster,
# such as the kinds, is not the other's. JANGAR_BENCH names another one.
bench=${JANGAR_BENCH:-$(basename "$root" | tr -c 'a-z0-9\n' -)-$(cksum <<<"$root" | cut -d' ' -f1)}
[[ "$bench" =~ ^[a-z0-9-]{1,60}$ ]] || die "JANGAR_BENCH=$bench is no name for a bench: use up to 60 of a-z, 0-9 and -"

# All that a bench writes while it is up. It is removed with the bench.
state=$cache/bench/$bench
# The first process of the bench: its pid as the machine sees it, and when it was started.
first_process=$state/first-process
# There once every part answered.
booted=$state/booted
# There if the bench was asked to stay up.
kept=$state/kept
# There if there is no real node, and says why.
no_real_node=$state/no-real-node
# Where the machine's cgroups are.
hierarchy=/sys/fs/cgroup
# Where the cgroups of pods hang, in each hierarchy.
cgroup=/jangar-bench/$bench

# The addresses exist in the network namespace of the bench only, so every bench has the same. The node's may not be a
# loopback address, which Kubernetes refuses for nodes and endpoints, nor be among those of Services, which kube-proxy
# would reject.
node_address=10.89.0.1
api_port=6443
api=https://$node_address:$api_port
service_range=10.96.0.0/24
# The first of the range is always the API's own Service.
service_api=10.96.0.1
pod_range=10.88.0.0/16

real_node=real-1
# The images of the real node that are not built from this repository.
pause_image=jangar.test/pause:1
busybox_image=jangar.test/busybox:1

certificates=$state/certificates
admin_kubeconfig=$state/admin.kubeconfig
