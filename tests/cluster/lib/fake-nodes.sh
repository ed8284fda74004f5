# Nodes that exist in the API only. kwok plays their kubelets, so there can be many of them in several zones. It is sourced.
# shellcheck shell=bash

zones=(zone-a zone-b zone-c)
nodes_per_zone=2

run_kwok() {
    exec "$KWOK" --kubeconfig="$admin_kubeconfig" --config="$cluster/stages.yaml" --server-address=127.0.0.1:10247 \
        --manage-all-nodes=false --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake \
        --node-lease-duration-seconds=40 --cidr=10.90.0.0/16 --node-ip=10.89.0.2
}

# The taint keeps pods that did not ask for it from landing where nothing runs.
print_fake_nodes() {
    local zone number=0 each
    for zone in "${zones[@]}"; do
        for ((each = 0; each < nodes_per_zone; each++)); do
            number=$((number + 1))
            cat <<YAML
---
apiVersion: v1
kind: Node
metadata:
  name: fake-$number
  annotations: {kwok.x-k8s.io/node: fake}
  labels:
    jangar.test/node: fake
    kubernetes.io/hostname: fake-$number
    kubernetes.io/os: linux
    topology.kubernetes.io/zone: $zone
spec:
  taints: [{key: jangar.test/fake, effect: NoSchedule}]
status:
  allocatable: {cpu: "32", memory: 256Gi, pods: "1000"}
  capacity: {cpu: "32", memory: 256Gi, pods: "1000"}
YAML
        done
    done
}
