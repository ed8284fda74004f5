{{/* Rights, as objects. */}}

{{- /* The Roles of one part, as a list in JSON below "list": {root, part, rules}. Rules about Leases go where the Lease is, all others to
each namespace that is looked after, or to the whole cluster. */ -}}
{{- define "agents.roles" -}}
{{- $name := printf "%s-%s" (include "agents.fullname" .root) .part -}}
{{- $work := list -}}
{{- $lease := list -}}
{{- range .rules -}}
{{- if not (has "coordination.k8s.io" .apiGroups) -}}
{{- $work = append $work . -}}
{{- else if hasKey . "resourceNames" -}}
{{- $lease = append $lease (merge (dict "resourceNames" (list $.root.Values.controller.leaderElection.leaseName)) .) -}}
{{- else -}}
{{- $lease = append $lease . -}}
{{- end -}}
{{- end -}}
{{- $roles := list -}}
{{- if $lease -}}
{{- $roles = append $roles (dict "kind" "Role" "name" (printf "%s-lease" $name) "namespace" (include "agents.leaseNamespace" .root) "rules" $lease) -}}
{{- end -}}
{{- if .root.Values.rbac.clusterScoped -}}
{{- /* Names of what belongs to no namespace must not meet those of another release. */ -}}
{{- $roles = append $roles (dict "kind" "ClusterRole" "name" (printf "%s-%s" (include "agents.namespace" .root) $name) "rules" $work) -}}
{{- else -}}
{{- range (include "agents.watchedNamespaces" .root | fromJson).list -}}
{{- $roles = append $roles (dict "kind" "Role" "name" $name "namespace" . "rules" $work) -}}
{{- end -}}
{{- end -}}
{{- dict "list" $roles | toJson -}}
{{- end -}}

{{- /* One of them: {root, role, labels}. */ -}}
{{- define "agents.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .role.kind }}
metadata:
  name: {{ .role.name }}
  {{- with .role.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "agents.labels" .root | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
rules:
  {{- toYaml .role.rules | nindent 2 }}
{{- end -}}

{{- /* Its binding to an account of the release: {root, role, account}. */ -}}
{{- define "agents.roleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .role.kind }}Binding
metadata:
  name: {{ .role.name }}
  {{- with .role.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "agents.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .role.kind }}
  name: {{ .role.name }}
subjects:
- kind: ServiceAccount
  name: {{ .account }}
  namespace: {{ include "agents.namespace" .root }}
{{- end -}}
