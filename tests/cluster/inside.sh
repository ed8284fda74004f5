#!/usr/bin/env bash
# What happens within the namespaces of a bench. bench.sh calls it there, with KUBE and KWOK as the paths of programs, and
# NODE_PACKAGES as the directory of those of the real node, if there is to be one.
#
#   inside.sh boot               as the first process: boots every part, and then collects what ends
#   inside.sh start|stop PART
#   inside.sh import FILE ...
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
source "$here/lib/base.sh"
source "$here/lib/parts.sh"
source "$here/lib/certificates.sh"
source "$here/lib/control-plane.sh"
source "$here/lib/real-node.sh"
source "$here/lib/fake-nodes.sh"

has_real_node() { [[ -n "$NODE_PACKAGES" ]]; }

# The machine's /proc is still mounted and tells the pid that the machine knows this process by; here it is 1.
introduce_itself() {
    local stat
    read -ra stat </proc/self/stat
    echo "${stat[0]} ${stat[21]}" >"$first_process"
}

own_system() {
    mount -t proc proc /proc
    # Sockets, the names of network namespaces and lock files belong to the bench alone.
    mount -t tmpfs -o mode=755 tmpfs /run
    ip link set lo up
    ip address add "$node_address/32" dev lo
    # There is no default route. Without this one, a local client of a Service would fail before its address is translated.
    ip route add "$service_range" dev lo src "$node_address"
}

# What takes long is started first: etcd and containerd come up while the certificates are made, and images are imported while
# the API server starts.
boot() {
    introduce_itself
    own_system
    start etcd
    if has_real_node; then
        own_places
        write_node_configuration
        start containerd
    fi
    make_certificates
    start kube-apiserver
    if has_real_node; then
        until_true 60 "containerd does not answer" containers version
        import_images "$NODE_PACKAGES"/images/*.tar
    fi
    until_true 60 "the API server does not listen" listens "$node_address" "$api_port"
    until_true 60 "the API server is not ready" kubectl get --raw /readyz
    start kube-controller-manager
    start kube-scheduler
    start kwok
    print_fake_nodes | kubectl create --validate=false --filename=- >/dev/null
    if has_real_node; then
        start kubelet
        start kube-proxy
        until_true 60 "the kubelet has not registered its node" kubectl get node "$real_node"
    fi
    # Pods are refused in a namespace until its service account is there.
    kubectl wait --for=create --timeout=150s serviceaccount/default >/dev/null
    kubectl wait --for=condition=Ready --timeout=150s nodes --all >/dev/null
    touch "$booted"
    echo booted >&8
    exec 8>&-
}

# Whatever loses its parent becomes a child of this process. There is always one left to wait for.
collect() {
    sleep infinity &
    while :; do wait -n || true; done
}

if has_real_node; then use_packages; fi
case $1 in
    boot)
        # Not joined with `&&`, within which a step that fails would not end the boot.
        boot
        collect
        ;;
    start) start "$2" ;;
    stop) stop "$2" ;;
    import) import_images "${@:2}" ;;
esac
