{{/*
The variables of a workload: one map from names to entries, so that no name is there twice. Of several sources of a name the last
one below counts.

  1. what values say              2. env.vars              3. what the workload is         4. controllers.env.vars or
  controlPlane.env.vars           5. env.secrets, env.config, env.extra                    6. what only the cluster can say
*/}}

{{- /* A scalar as text. Helm holds numbers as floats, which print as 2.592e+06. */ -}}
{{- define "agents.scalar" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if kindIs "bool" . }}{{ ternary "true" "false" . }}{{ else }}{{ int64 . }}{{ end -}}
{{- end -}}

{{- /* plain NAME VALUE: {map, name, value}. */ -}}
{{- define "agents.env.plain" -}}
{{- $_ := set .map .name (dict "value" (include "agents.scalar" .value)) -}}
{{- end -}}

{{- /* The same, unless the text, list or map is empty. Lists and maps become JSON. */ -}}
{{- define "agents.env.unlessEmpty" -}}
{{- if .value -}}
{{- if or (kindIs "slice" .value) (kindIs "map" .value) -}}
{{- $_ := set .map .name (dict "value" (.value | toJson)) -}}
{{- else -}}
{{- $_ := set .map .name (dict "value" (include "agents.scalar" .value)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Fills .map with what values say. */ -}}
{{- define "agents.env.fromValues" -}}
{{- $map := .map -}}
{{- $values := .root.Values -}}
{{- $controller := $values.controller -}}
{{- $workload := $controller.defaultWorkload -}}
{{- $namespaces := join "," (include "agents.namespacesOf" (dict "root" .root "own" list) | fromJson).list -}}
{{- $policy := $controller.admissionPolicy -}}
{{- $pullSecrets := default $values.runner.image.pullSecrets $workload.imagePullSecrets -}}
{{- $runnerImage := $values.runtime.agentRunnerImage -}}
{{- if and (not $runnerImage) $values.runner.image.repository }}{{ $runnerImage = include "agents.imageReference" $values.runner.image }}{{ end -}}
{{- $runnerAccount := $workload.serviceAccountName -}}
{{- if and (not $runnerAccount) $values.runnerServiceAccount.setAsDefault }}{{ $runnerAccount = include "agents.runnerServiceAccountName" .root }}{{ end -}}
{{- /* A value that is false or 0 says something, so these are written whatever they are. */ -}}
{{- range $name, $value := dict
  "JANGAR_AGENTS_CONTROLLER_ENABLED" (ternary "1" "0" $controller.enabled)
  "JANGAR_AGENTS_CONTROLLER_NAMESPACES" $namespaces
  "JANGAR_PRIMITIVES_NAMESPACES" $namespaces
  "JANGAR_RBAC_CLUSTER_SCOPED" $values.rbac.clusterScoped
  "JANGAR_REFERENCE_GRACE_SECONDS" $controller.referenceGraceSeconds
  "JANGAR_LEADER_ELECTION_ENABLED" $controller.leaderElection.enabled
  "JANGAR_LEADER_ELECTION_LEASE_NAME" $controller.leaderElection.leaseName
  "JANGAR_LEADER_ELECTION_LEASE_NAMESPACE" (include "agents.leaseNamespace" .root)
  "JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS" $controller.leaderElection.leaseDurationSeconds
  "JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS" $controller.leaderElection.renewDeadlineSeconds
  "JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS" $controller.leaderElection.retryPeriodSeconds
  "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE" $controller.concurrency.perNamespace
  "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT" $controller.concurrency.perAgent
  "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER" $controller.concurrency.cluster
  "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_ENABLED" $controller.repoConcurrency.enabled
  "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_DEFAULT" (index $controller.repoConcurrency "default")
  "JANGAR_AGENTS_CONTROLLER_QUEUE_NAMESPACE" $controller.queue.perNamespace
  "JANGAR_AGENTS_CONTROLLER_QUEUE_REPO" $controller.queue.perRepo
  "JANGAR_AGENTS_CONTROLLER_QUEUE_CLUSTER" $controller.queue.cluster
  "JANGAR_AGENTS_CONTROLLER_RATE_WINDOW_SECONDS" $controller.rate.windowSeconds
  "JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE" $controller.rate.perNamespace
  "JANGAR_AGENTS_CONTROLLER_RATE_REPO" $controller.rate.perRepo
  "JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER" $controller.rate.cluster
  "JANGAR_AGENTS_CONTROLLER_WEBHOOK_QUEUE_SIZE" $controller.webhook.queueSize
  "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_BASE_DELAY_SECONDS" $controller.webhook.retry.baseDelaySeconds
  "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_DELAY_SECONDS" $controller.webhook.retry.maxDelaySeconds
  "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_ATTEMPTS" $controller.webhook.retry.maxAttempts
  "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS" $controller.agentRunRetentionSeconds
  "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_DELETES_PER_MINUTE" $controller.agentRunRetentionDeletesPerMinute
  "JANGAR_AGENTRUN_ARTIFACTS_MAX" $controller.agentRunArtifacts.max
  "JANGAR_AGENTRUN_ARTIFACTS_STRICT" $controller.agentRunArtifacts.strict
  "JANGAR_AGENT_RUNNER_LOG_RETENTION_SECONDS" $controller.logRetentionSeconds
  "JANGAR_AGENT_RUNNER_JOB_CONTROLLER" $controller.jobController
  "JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS" (include "agents.jobTtl" .root)
  "JANGAR_AGENTS_CONTROLLER_VCS_PROVIDERS_ENABLED" $controller.vcsProviders.enabled
  "JANGAR_AGENTS_CONTROLLER_POD_SECURITY_RESTRICTED" $policy.podSecurityRestricted
  "JANGAR_ORCHESTRATION_CONTROLLER_ENABLED" (ternary "1" "0" $values.orchestrationController.enabled)
  "JANGAR_ORCHESTRATION_CONTROLLER_NAMESPACES" (join "," (include "agents.namespacesOf" (dict "root" .root "own" $values.orchestrationController.namespaces) | fromJson).list)
  "JANGAR_ORCHESTRATION_CANCEL_ENABLED" $values.orchestrationController.cancel.enabled
  "JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS" $values.orchestrationController.cancel.timeoutMs
  "JANGAR_SUPPORTING_CONTROLLER_ENABLED" (ternary "1" "0" $values.supportingController.enabled)
  "JANGAR_SUPPORTING_CONTROLLER_NAMESPACES" (join "," (include "agents.namespacesOf" (dict "root" .root "own" $values.supportingController.namespaces) | fromJson).list)
  "JANGAR_IMAGE" (include "agents.image" (dict "root" .root "component" (ternary "controllers" "controlPlane" $values.controllers.enabled)))
  "JANGAR_SERVICE_ACCOUNT_NAME" (include "agents.componentServiceAccountName" (dict "root" .root "component" .component))
  "JANGAR_LOG" $values.logging.level -}}
{{- include "agents.env.plain" (dict "map" $map "name" $name "value" $value) -}}
{{- end -}}
{{- range $name, $value := dict
  "JANGAR_AGENT_RUNNER_IMAGE" $runnerImage
  "JANGAR_AGENT_IMAGE" $values.runtime.agentImage
  "JANGAR_SCHEDULE_RUNNER_IMAGE" $values.runtime.scheduleRunnerImage
  "JANGAR_SCHEDULE_SERVICE_ACCOUNT" $values.runtime.scheduleServiceAccount
  "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT" $runnerAccount
  "JANGAR_AGENT_RUNNER_NODE_SELECTOR" $workload.nodeSelector
  "JANGAR_AGENT_RUNNER_TOLERATIONS" $workload.tolerations
  "JANGAR_AGENT_RUNNER_AFFINITY" $workload.affinity
  "JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS" $workload.topologySpreadConstraints
  "JANGAR_AGENT_RUNNER_POD_SECURITY_CONTEXT" $workload.podSecurityContext
  "JANGAR_AGENT_RUNNER_IMAGE_PULL_SECRETS" $pullSecrets
  "JANGAR_AGENT_RUNNER_PRIORITY_CLASS" $workload.priorityClassName
  "JANGAR_AGENT_RUNNER_SCHEDULER_NAME" $workload.schedulerName
  "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES" $controller.repoConcurrency.overrides
  "JANGAR_AGENTS_CONTROLLER_LABELS_REQUIRED" $policy.labels.required
  "JANGAR_AGENTS_CONTROLLER_LABELS_ALLOWED" $policy.labels.allowed
  "JANGAR_AGENTS_CONTROLLER_LABELS_DENIED" $policy.labels.denied
  "JANGAR_AGENTS_CONTROLLER_IMAGES_ALLOWED" $policy.images.allowed
  "JANGAR_AGENTS_CONTROLLER_IMAGES_DENIED" $policy.images.denied
  "JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS" $policy.secrets.blocked
  "JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED" $policy.serviceAccounts.allowed
  "JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED" $policy.priorityClasses.allowed
  "JANGAR_AGENTS_CONTROLLER_VCS_DEPRECATED_TOKEN_TYPES" $controller.vcsProviders.deprecatedTokenTypes
  "JANGAR_AGENTS_CONTROLLER_VCS_PR_RATE_LIMITS" $controller.vcsProviders.prRateLimits
  "KUBERNETES_SERVICE_HOST" $values.kubernetesApi.host
  "KUBERNETES_SERVICE_PORT" $values.kubernetesApi.port -}}
{{- include "agents.env.unlessEmpty" (dict "map" $map "name" $name "value" $value) -}}
{{- end -}}
{{- with $controller.authSecret -}}
{{- if .name -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME" "value" .name) -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_KEY" "value" .key) -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_MOUNT_PATH" "value" .mountPath) -}}
{{- end -}}
{{- end -}}
{{- /* Where the controllers are, and the key with them. */ -}}
{{- with $controller.customRuntime -}}
{{- if and .callbackUrl (include "agents.hasControllers" $) -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL" "value" .callbackUrl) -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_CUSTOM_RUNTIME_CALLBACK_LISTEN" "value" "0.0.0.0:8081") -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_CUSTOM_RUNTIME_KEY_FILE" "value" "/etc/jangar/custom-runtime/key") -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_CUSTOM_RUNTIME_TIMEOUT_SECONDS" "value" .timeoutSeconds) -}}
{{- include "agents.env.unlessEmpty" (dict "map" $map "name" "JANGAR_CUSTOM_RUNTIME_ALLOWED_ENDPOINTS" "value" .allowedEndpoints) -}}
{{- include "agents.env.unlessEmpty" (dict "map" $map "name" "JANGAR_CUSTOM_RUNTIME_OPEN_NETWORKS" "value" .openNetworks) -}}
{{- end -}}
{{- end -}}
{{- with $values.database -}}
{{- if .createSecret.enabled -}}
{{- $_ := set $map "DATABASE_URL" (dict "valueFrom" (dict "secretKeyRef" (dict "name" (include "agents.databaseSecretName" $.root) "key" "url"))) -}}
{{- else if .url -}}
{{- include "agents.env.plain" (dict "map" $map "name" "DATABASE_URL" "value" .url) -}}
{{- else if .secretRef.name -}}
{{- $_ := set $map "DATABASE_URL" (dict "valueFrom" (dict "secretKeyRef" (dict "name" .secretRef.name "key" (default "url" .secretRef.key)))) -}}
{{- end -}}
{{- if .caSecret.name -}}
{{- include "agents.env.plain" (dict "map" $map "name" "PGSSLROOTCERT" "value" (printf "/etc/jangar/ca/%s" .caSecret.key)) -}}
{{- end -}}
{{- end -}}
{{- /* In place of what the program would find by itself, so the image's own have to be named too. */ -}}
{{- if $values.trustedCertificates.configMap -}}
{{- include "agents.env.plain" (dict "map" $map "name" "SSL_CERT_DIR" "value" "/etc/ssl/certs:/etc/jangar/trusted") -}}
{{- end -}}
{{- if eq .component "controlPlane" -}}
{{- if $values.controlPlane.tls.secret.name -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_TLS_CERT_FILE" "value" "/etc/jangar/tls/tls.crt") -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_TLS_KEY_FILE" "value" "/etc/jangar/tls/tls.key") -}}
{{- end -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_PROMETHEUS_METRICS_ENABLED" "value" $values.metrics.enabled) -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_PROMETHEUS_METRICS_PATH" "value" $values.metrics.path) -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_GRPC_ENABLED" "value" $values.grpc.enabled) -}}
{{- if $values.grpc.enabled -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_GRPC_HOST" "value" "0.0.0.0") -}}
{{- include "agents.env.plain" (dict "map" $map "name" "JANGAR_GRPC_PORT" "value" $values.grpc.port) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What a workload is, whatever `env.vars` says for both. Whether the control plane runs controllers is one of its arguments: the
variables tell it what is looked after at all, so that its status is true. */ -}}
{{- define "agents.env.role" -}}
{{- if eq .component "controllers" -}}
{{- range $name, $value := dict "JANGAR_MIGRATIONS" "skip" "JANGAR_GRPC_ENABLED" "0" "JANGAR_CONTROL_PLANE_CACHE_ENABLED" "0" -}}
{{- include "agents.env.plain" (dict "map" $.map "name" $name "value" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* All variables of a component, as a JSON object from names to entries: {root, component}. */ -}}
{{- define "agents.env.map" -}}
{{- $map := dict -}}
{{- include "agents.env.fromValues" (dict "root" .root "component" .component "map" $map) -}}
{{- range $name, $value := .root.Values.env.vars -}}
{{- include "agents.env.plain" (dict "map" $map "name" $name "value" $value) -}}
{{- end -}}
{{- include "agents.env.role" (dict "root" .root "component" .component "map" $map) -}}
{{- range $name, $value := (index .root.Values .component).env.vars -}}
{{- include "agents.env.plain" (dict "map" $map "name" $name "value" $value) -}}
{{- end -}}
{{- range .root.Values.env.secrets -}}
{{- $ref := dict "name" .secretName "key" (default "value" .key) -}}
{{- if hasKey . "optional" }}{{ $_ := set $ref "optional" .optional }}{{ end -}}
{{- $_ := set $map .name (dict "valueFrom" (dict "secretKeyRef" $ref)) -}}
{{- end -}}
{{- range .root.Values.env.config -}}
{{- $ref := dict "name" .configMapName "key" (default .name .key) -}}
{{- if hasKey . "optional" }}{{ $_ := set $ref "optional" .optional }}{{ end -}}
{{- $_ := set $map .name (dict "valueFrom" (dict "configMapKeyRef" $ref)) -}}
{{- end -}}
{{- range .root.Values.env.extra -}}
{{- include "agents.env.plain" (dict "map" $map "name" .name "value" .value) -}}
{{- end -}}
{{- $_ := set $map "JANGAR_POD_NAMESPACE" (dict "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.namespace"))) -}}
{{- $_ := set $map "JANGAR_POD_UID" (dict "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.uid"))) -}}
{{- if include "agents.hasControllers" . -}}
{{- $_ := set $map "JANGAR_ROLLOUT_ROLE_FILE" (dict "value" "/etc/jangar/pod/rollout-role") -}}
{{- end -}}
{{- $map | toJson -}}
{{- end -}}

{{- define "agents.env" -}}
{{- range $name, $entry := include "agents.env.map" . | fromJson }}
- name: {{ $name }}
{{- if hasKey $entry "value" }}
  value: {{ $entry.value | quote }}
{{- else }}
  valueFrom:
    {{- toYaml $entry.valueFrom | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}
