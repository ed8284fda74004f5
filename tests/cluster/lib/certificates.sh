# One authority, a certificate for everyone who speaks to the API server, and a kubeconfig beside each. It is sourced.
# shellcheck shell=bash

# Valid for longer than any bench is up.
days=30

# new_key FILE
new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

# certificate NAME SUBJECT PURPOSE [ALTERNATIVE-NAMES]
certificate() {
    local extensions
    extensions=$(printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n%s' "$3" "${4:+subjectAltName=$4}")
    new_key "$1.key"
    openssl req -new -key "$1.key" -subj "$2" |
        openssl x509 -req -CA ca.crt -CAkey ca.key -days "$days" -extfile <(echo "$extensions") -out "$1.crt" 2>/dev/null
}

# kubeconfig NAME FILE: for the certificate of that name.
kubeconfig() {
    cat >"$2" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: bench
  cluster: {server: "$api", certificate-authority-data: $(base64 -w0 ca.crt)}
users:
- name: $1
  user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}
contexts:
- name: bench
  context: {cluster: bench, user: $1}
current-context: bench
YAML
}

# The name of a user is CN and the groups are O, which is where Kubernetes reads them.
make_certificates() (
    umask 077
    mkdir -p "$certificates"
    cd "$certificates" || exit
    new_key ca.key
    openssl req -x509 -key ca.key -days "$days" -subj /CN=jangar-bench -out ca.crt \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
    certificate kube-apiserver /CN=kube-apiserver serverAuth \
        "IP:$node_address,IP:$service_api,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    certificate admin /O=system:masters/CN=admin clientAuth
    certificate kube-controller-manager /CN=system:kube-controller-manager clientAuth
    certificate kube-scheduler /CN=system:kube-scheduler clientAuth
    certificate kube-proxy /CN=system:kube-proxy clientAuth
    certificate kubelet "/O=system:nodes/CN=system:node:$real_node" clientAuth
    for name in kube-controller-manager kube-scheduler kube-proxy kubelet; do kubeconfig "$name" "$name.kubeconfig"; done
    kubeconfig admin "$admin_kubeconfig"
    new_key service-accounts.key
    openssl ec -in service-accounts.key -pubout -out service-accounts.pub 2>/dev/null
)
