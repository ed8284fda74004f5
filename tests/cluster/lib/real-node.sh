# One node on which pods really run: containerd, the kubelet and kube-proxy. It is sourced.
# shellcheck shell=bash

# Prints why there can be no real node, if so.
real_node_obstacle() {
    local each
    if ((EUID != 0)); then
        echo "a real node needs root: run the same command as root"
        return
    fi
    for each in cpu cpuset memory pids; do
        if has_one_hierarchy; then
            grep -qw "$each" "$hierarchy/cgroup.controllers" || echo "a real node needs the cgroup controller $each, and $hierarchy/cgroup.controllers does not name it"
        else
            [[ -d $hierarchy/$each ]] || echo "a real node needs the cgroup controller $each, and it is not mounted at $hierarchy/$each"
        fi
    done
}

# Whether the machine has the second version of cgroups, which is one hierarchy for all controllers.
has_one_hierarchy() { [[ -e $hierarchy/cgroup.controllers ]]; }

# Makes the root of the cgroups of pods, which is the bench's own, so that two benches on a machine do not share one. Prints why
# it cannot be, if so.
own_cgroups() {
    local each controllers=() words
    if ! has_one_hierarchy; then
        for each in "$hierarchy"/*/; do mkdir -p "${each%/}$cgroup" 2>/dev/null || true; done
        return
    fi
    # In one hierarchy a controller is there only where the level above hands it down, and a kubelet refuses a root that lacks
    # one of these if the machine has it. Below its root, it hands them down itself.
    for each in cpu cpuset hugetlb memory pids; do
        ! grep -qw "$each" "$hierarchy/cgroup.controllers" || controllers+=("+$each")
    done
    words=$(mkdir -p "$hierarchy$cgroup" 2>&1) || {
        echo "a real node needs a cgroup of its own: $words"
        return
    }
    for each in "$hierarchy" "$hierarchy${cgroup%/*}"; do
        words=$({ echo "${controllers[*]}" >"$each/cgroup.subtree_control"; } 2>&1) || {
            echo "a real node needs the cgroup controllers ${controllers[*]#+}, and $each does not hand them down (${words##*: }): run on the machine itself, or in a container that begins at a cgroup without processes"
            return
        }
    done
}

# Programs and libraries of the packages that were unpacked and not installed.
use_packages() {
    local each
    PATH=$NODE_PACKAGES/usr/sbin:$NODE_PACKAGES/usr/bin:$NODE_PACKAGES/sbin:$NODE_PACKAGES/bin:$PATH
    for each in "$NODE_PACKAGES"/usr/lib/*-linux-gnu* "$NODE_PACKAGES"/lib/*-linux-gnu*; do
        [[ ! -d "$each" ]] || export LD_LIBRARY_PATH=$each${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done
}

# A private view of the few places outside its own directory that the node writes to. The mounts are the bench's own.
own_places() {
    local setting value
    mount --make-rshared /
    mkdir -p "$state/pod-logs" "$state/sysctl"
    mount --bind "$state/pod-logs" /var/log
    # containerd has no option for where CNI's notes go, nor a kubelet for where it meets the plugins of devices.
    mkdir -p /var/lib/cni /var/lib/kubelet
    mount -t tmpfs tmpfs /var/lib/cni
    mount -t tmpfs tmpfs /var/lib/kubelet
    # A kubelet sets these for the whole machine, unless it reads that they are as it wants them.
    while read -r setting value; do
        [[ -e /proc/sys/$setting ]] || continue
        echo "$value" >"$state/sysctl/${setting//\//-}"
        mount --bind "$state/sysctl/${setting//\//-}" "/proc/sys/$setting"
    done <<'SYSCTL'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SYSCTL
}

write_node_configuration() {
    local snapshotter=overlayfs
    # An overlay cannot lie on another one, as in a container.
    [[ "$(stat -f -c %T "$state")" != overlayfs ]] || snapshotter=native
    mkdir -p "$state/cni" "$state/containerd"
    # There is nothing behind the bridge, so there is nothing to masquerade.
    cat >"$state/cni/10-bench.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "bench", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pod_range"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
JSON
    # Without the right to lower oom_score_adj, which root in a container or a small virtual machine lacks, no sandbox
    # would start: hence restrict_oom_score_adj.
    cat >"$state/containerd.toml" <<TOML
version = 2
root = "$state/containerd/root"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$state/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  stream_server_address = "127.0.0.1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$NODE_PACKAGES/cni"
    conf_dir = "$state/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
TOML
    # Images are imported and cannot be fetched again, so none is ever collected, and a full disk evicts nobody.
    : >"$state/resolv.conf"
    cat >"$state/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_address
healthzBindAddress: 127.0.0.1
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $certificates/ca.crt}}
authorization: {mode: Webhook}
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: $cgroup
makeIPTablesUtilChains: false
resolvConf: $state/resolv.conf
volumePluginDir: $state/kubelet/volume-plugins
evictionHard: {memory.available: 200Mi, nodefs.available: 0%, imagefs.available: 0%, nodefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
YAML
    # What belongs to the whole machine stays as it is: conntrack's limits are not per namespace.
    cat >"$state/kube-proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $certificates/kube-proxy.kubeconfig}
clusterCIDR: $pod_range
hostnameOverride: $real_node
bindAddress: 127.0.0.1
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0}
YAML
}

# ctr's namespace for what the kubelet runs.
containers() { ctr --address /run/containerd/containerd.sock --namespace k8s.io "$@"; }

# import_images FILE ...
import_images() {
    local each
    for each in "$@"; do containers images import "$each" >/dev/null || die "$each could not be imported"; done
}

run_containerd() { exec containerd --config "$state/containerd.toml"; }

run_kubelet() {
    exec "$KUBE" kubelet --config="$state/kubelet.yaml" --kubeconfig="$certificates/kubelet.kubeconfig" \
        --root-dir="$state/kubelet" --cert-dir="$state/kubelet/pki" --hostname-override="$real_node" \
        --node-ip="$node_address" --node-labels=jangar.test/node=real,topology.kubernetes.io/zone=zone-a
}

run_kube_proxy() { exec "$KUBE" kube-proxy --config="$state/kube-proxy.yaml"; }
