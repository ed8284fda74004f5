# etcd, the API server, the controller manager and the scheduler. It is sourced.
# shellcheck shell=bash

# Collecting garbage takes the API server a quarter of its time with the little that a test stores: all parts may hold more of it.
# With ten thousand runs of the benchmark that would be twenty gigabytes, so there is an end to it, which leaves room for what is live. What is run in the bench does not
# inherit either.
export GOGC=400 GOMEMLIMIT=14GiB

run_etcd() {
    # The data lives as long as the bench, so it need not survive a loss of power. Twenty thousand runs of the benchmark are
    # more than the two gigabytes that etcd allows itself.
    exec "$KUBE" etcd --name=bench --data-dir="$state/etcd" --unsafe-no-fsync --log-level=warn \
        --quota-backend-bytes=8589934592 \
        --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
        --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
        --initial-cluster=bench=http://127.0.0.1:2380
}

run_kube_apiserver() {
    exec "$KUBE" kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
        --bind-address="$node_address" --secure-port="$api_port" --advertise-address="$node_address" \
        --service-cluster-ip-range="$service_range" --allow-privileged \
        --authorization-mode=Node,RBAC \
        --enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement \
        --audit-policy-file="$cluster/audit-policy.yaml" --audit-log-path="$state/audit.log" --audit-log-maxsize=1000 \
        --cert-dir="$certificates" --client-ca-file="$certificates/ca.crt" \
        --tls-cert-file="$certificates/kube-apiserver.crt" --tls-private-key-file="$certificates/kube-apiserver.key" \
        --kubelet-client-certificate="$certificates/admin.crt" --kubelet-client-key="$certificates/admin.key" \
        --kubelet-preferred-address-types=InternalIP \
        --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$certificates/service-accounts.pub" \
        --service-account-signing-key-file="$certificates/service-accounts.key"
}

# With its own limit of 20 requests a second the controller manager needs five seconds to boot, and ends three Jobs in one:
# tests of many Jobs would measure that limit.
fast_client=(--kube-api-qps=1000 --kube-api-burst=2000)

# There is one of each, so none has to be elected.
run_kube_controller_manager() {
    local kubeconfig=$certificates/kube-controller-manager.kubeconfig
    exec "$KUBE" kube-controller-manager --kubeconfig="$kubeconfig" \
        --authentication-kubeconfig="$kubeconfig" --authorization-kubeconfig="$kubeconfig" \
        --bind-address=127.0.0.1 --cert-dir="$certificates" --leader-elect=false --use-service-account-credentials \
        --root-ca-file="$certificates/ca.crt" --service-account-private-key-file="$certificates/service-accounts.key" \
        --concurrent-job-syncs=50 "${fast_client[@]}"
}

run_kube_scheduler() {
    local kubeconfig=$certificates/kube-scheduler.kubeconfig
    exec "$KUBE" kube-scheduler --kubeconfig="$kubeconfig" \
        --authentication-kubeconfig="$kubeconfig" --authorization-kubeconfig="$kubeconfig" \
        --bind-address=127.0.0.1 --cert-dir="$certificates" --leader-elect=false "${fast_client[@]}"
}
