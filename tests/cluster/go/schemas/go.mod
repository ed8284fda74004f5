// Where the schemas of objects come from that manifests are checked against: scripts/agents/schemas.sh. Nothing is built here; the
// versions are pinned, and Go downloads the modules. Kubernetes and Argo Rollouts are those that the tests run.
module jangar.test/schemas

go 1.26

require (
	github.com/argoproj/argo-cd/v3 v3.5.6
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
