# One authority, a certificate for everyone who speaks to the API server, and a kubeconfig beside each. It is sourced.
# shellcheck shell=bash

# Valid for longer than any bench is up.
days=30

# The defaults of a distribution would make an authority of everyone.
plain='[req]
distinguished_name = name
[name]
'

# signed NAME SUBJECT OPTION ...: a new key and its certificate.
signed() {
    openssl req -x509 -config <(echo "$plain") -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days "$days" \
        -subj "$2" -keyout "$1.key" -out "$1.crt" "${@:3}" 2>"$1.log" ||
        die "the certificate of $1 could not be made, which needs OpenSSL 3: $(tail -n 1 "$1.log")"
}

# certificate NAME SUBJECT OPTION ...: the same, signed by the authority.
certificate() { signed "$@" -CA ca.crt -CAkey ca.key -addext keyUsage=critical,digitalSignature; }

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
    signed ca /CN=jangar-bench -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
    certificate kube-apiserver /CN=kube-apiserver -addext extendedKeyUsage=serverAuth \
        -addext "subjectAltName=IP:$node_address,IP:$service_api,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    local client=(-addext extendedKeyUsage=clientAuth)
    certificate admin /O=system:masters/CN=admin "${client[@]}"
    certificate kube-controller-manager /CN=system:kube-controller-manager "${client[@]}"
    certificate kube-scheduler /CN=system:kube-scheduler "${client[@]}"
    certificate kube-proxy /CN=system:kube-proxy "${client[@]}"
    certificate kubelet "/O=system:nodes/CN=system:node:$real_node" "${client[@]}"
    for name in kube-controller-manager kube-scheduler kube-proxy kubelet; do kubeconfig "$name" "$name.kubeconfig"; done
    kubeconfig admin "$admin_kubeconfig"
    # Service accounts have tokens, which are signed with a key that nobody vouches for.
    signed service-accounts /CN=service-accounts
    openssl ec -in service-accounts.key -pubout -out service-accounts.pub 2>/dev/null
)
