{{/* What cannot be meant, found before anything is rendered. Each sentence says what to change; all are told at once. */}}

{{- /* The one time that a finished Job is kept, whichever of its names it goes by. */ -}}
{{- define "agents.jobTtl" -}}
{{- $found := "" -}}
{{- range list "jobTTLSeconds" "jobTtlSeconds" "jobTtlSecondsAfterFinished" -}}
{{- if not (kindIs "invalid" (index $.Values.controller .)) }}{{ $found = index $.Values.controller . | int64 | toString }}{{ end -}}
{{- end -}}
{{- default "600" $found -}}
{{- end -}}

{{- define "agents.wrong.workloads" -}}
{{- if not (or .Values.controlPlane.enabled .Values.controllers.enabled) }}
- controlPlane.enabled and controllers.enabled are both false, so nothing would run: set one of them to true
{{- end -}}
{{- range $name, $workload := dict "autoscaling" "controlPlane" "controllers.autoscaling" "controllers" -}}
{{- $scaled := ternary $.Values.autoscaling $.Values.controllers.autoscaling (eq $name "autoscaling") -}}
{{- if and $scaled.enabled (not (index $.Values $workload).enabled) }}
- {{ $name }}.enabled is true and {{ $workload }}.enabled is false, so there is nothing to scale: set the second to true, or the first to false
{{- end -}}
{{- if and $scaled.enabled (gt (int64 $scaled.minReplicas) (int64 $scaled.maxReplicas)) }}
- {{ $name }}.minReplicas is {{ int64 $scaled.minReplicas }} and maxReplicas is {{ int64 $scaled.maxReplicas }}: the first may not be more than the second
{{- end -}}
{{- end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if and .enabled (not (has (toString .maxUnavailable) (list "" "<nil>"))) (not (has (toString .minAvailable) (list "1" "" "<nil>"))) }}
- podDisruptionBudget.minAvailable is {{ .minAvailable }} and maxUnavailable is {{ .maxUnavailable }}: Kubernetes takes one of them, set the other to ""
{{- end -}}
{{- end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if and .enabled (has (toString .maxUnavailable) (list "" "<nil>")) (has (toString .minAvailable) (list "" "<nil>")) }}
- podDisruptionBudget.enabled is true and both minAvailable and maxUnavailable are empty: set one of them
{{- end -}}
{{- end -}}
{{- range (include "agents.components" . | fromJson).list -}}
{{- /* 600 is what Kubernetes gives a Deployment. */ -}}
{{- $deadline := ternary (int64 $.Values.progressiveDelivery.progressDeadlineSeconds) 600 (ne (include "agents.isRollout" (dict "root" $ "component" .)) "") -}}
{{- if ge (int64 $.Values.minReadySeconds) (int64 $deadline) }}
- minReadySeconds is {{ int64 $.Values.minReadySeconds }}, and {{ . }} has to make progress within {{ $deadline }} s: make minReadySeconds less
{{- end -}}
{{- end -}}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/part-of" "agents.proompteng.ai/rollout-role" -}}
{{- if hasKey $.Values.podLabels . }}
- podLabels has {{ . }}, by which the chart and Argo Rollouts know the pods: take it out
{{- end -}}
{{- end -}}
{{- $own := dict
  "pod" true
  "custom-runtime-key" .Values.controller.customRuntime.callbackUrl
  "db-ca-cert" .Values.database.caSecret.name
  "tls" .Values.controlPlane.tls.secret.name
  "trusted-certificates" .Values.trustedCertificates.configMap -}}
{{- $seen := list -}}
{{- range $volume := .Values.extraVolumes -}}
{{- if or (get $own .name) (has .name $seen) }}
- extraVolumes has {{ .name }}, and there is a volume of that name already: give it another name
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- with .Values.podSecurityAdmission -}}
{{- if ne .enabled .createNamespace }}
- podSecurityAdmission.enabled is {{ .enabled }} and createNamespace is {{ .createNamespace }}: the namespace is made if both are true, so set both or neither
{{- end -}}
{{- $namespace := include "agents.namespace" $ -}}
{{- if and .enabled .createNamespace $.Release.IsInstall (eq $namespace $.Release.Namespace) (lookup "v1" "Namespace" "" $namespace) }}
- podSecurityAdmission.createNamespace is true and the namespace {{ $namespace }} is there, as Helm needs it before it makes anything: label it yourself (kubectl label namespace {{ $namespace }} pod-security.kubernetes.io/enforce=restricted) and set podSecurityAdmission.enabled and createNamespace to false
{{- end -}}
{{- end -}}
{{- with .Values.resourceQuota }}{{ if and .enabled (not .hard) }}
- resourceQuota.enabled is true and resourceQuota.hard is empty: say what is bounded, such as pods: "50"
{{- end }}{{ end -}}
{{- with .Values.limitRange }}{{ if and .enabled (not .limits) }}
- limitRange.enabled is true and limitRange.limits is empty: add a limit
{{- end }}{{ end -}}
{{- if and .Values.controlPlane.webhooks.enabled (not .Values.controlPlane.enabled) }}
- controlPlane.webhooks.enabled is true and controlPlane.enabled is false, so nobody would take a delivery: set the second to true, or the first to false
{{- end -}}
{{- with .Values.controlPlane.webhooks }}{{ if and .enabled (not .secrets) }}
- controlPlane.webhooks.enabled is true and no Secret is named, so no delivery could be known: set controlPlane.webhooks.secrets to those of your ImplementationSources
{{- end }}{{ end -}}
{{- with .Values.metrics -}}
{{- if and .serviceMonitor.enabled (not (and .enabled .service.enabled)) }}
- metrics.serviceMonitor.enabled needs a Service to read from: set metrics.enabled and metrics.service.enabled to true
{{- end -}}
{{- end -}}
{{- range list "prometheusRule" "dashboards" -}}
{{- if and (index $.Values.metrics .).enabled (not $.Values.metrics.enabled) }}
- metrics.{{ . }}.enabled is true and metrics.enabled is false, so it would not be made: set the second to true, or the first to false
{{- end -}}
{{- end -}}
{{- if and .Values.runtime.agentRunnerImage .Values.runner.image.repository }}
- runtime.agentRunnerImage and runner.image.repository both name the image of runs: set one of them
{{- end -}}
{{- with .Values.controller.customRuntime -}}
{{- if and .callbackUrl (not .keySecret.name) }}
- controller.customRuntime.callbackUrl needs a key to sign tokens with: set controller.customRuntime.keySecret.name
{{- end -}}
{{- if and .keySecret.name (not .callbackUrl) }}
- controller.customRuntime.keySecret.name is set and callbackUrl is not, so nobody would use the key: set callbackUrl too
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "agents.wrong.scope" -}}
{{- range $name, $list := dict "controller" .Values.controller.namespaces "orchestrationController" .Values.orchestrationController.namespaces "supportingController" .Values.supportingController.namespaces -}}
{{- if has "*" $list -}}
{{- if not $.Values.rbac.clusterScoped }}
- {{ $name }}.namespaces has *, which needs rights in the whole cluster: set rbac.clusterScoped to true, or name the namespaces
{{- end -}}
{{- if gt (len $list) 1 }}
- {{ $name }}.namespaces has * beside other names, which say nothing then: keep one or the other
{{- end -}}
{{- end -}}
{{- end -}}
{{- $all := (include "agents.namespacesOf" (dict "root" . "own" list) | fromJson).list -}}
{{- if not (has "*" $all) -}}
{{- range $name, $list := dict "orchestrationController" .Values.orchestrationController.namespaces "supportingController" .Values.supportingController.namespaces -}}
{{- range without $list "*" -}}
{{- if not (has . $all) }}
- {{ $name }}.namespaces has {{ . }}, which controller.namespaces does not have, so nothing would be looked after there: add it there, or take it out
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.runnerServiceAccount.create (has "*" .Values.controller.namespaces) }}
- runnerServiceAccount.create makes an account in each namespace that is named, and controller.namespaces has *: make the account yourself where runs are and name it in controller.defaultWorkload.serviceAccountName, or name the namespaces
{{- end -}}
{{- if and .Values.rbac.userRoles.aggregate (not .Values.rbac.clusterScoped) }}
- rbac.userRoles.aggregate needs ClusterRoles: set rbac.clusterScoped to true, or bind the Roles yourself
{{- end -}}
{{- if and .Values.rbac.userRoles.aggregate (not .Values.rbac.userRoles.create) }}
- rbac.userRoles.aggregate is true and no such role is made: set rbac.userRoles.create to true
{{- end -}}
{{- with .Values.controller.leaderElection -}}
{{- if not (and (lt (int64 .retryPeriodSeconds) (int64 .renewDeadlineSeconds)) (lt (int64 .renewDeadlineSeconds) (int64 .leaseDurationSeconds))) }}
- controller.leaderElection has retryPeriodSeconds {{ int64 .retryPeriodSeconds }}, renewDeadlineSeconds {{ int64 .renewDeadlineSeconds }} and leaseDurationSeconds {{ int64 .leaseDurationSeconds }}: each must be less than the next
{{- end -}}
{{- if not .enabled -}}
{{- $component := ternary "controllers" "controlPlane" $.Values.controllers.enabled -}}
{{- $scaled := ternary $.Values.controllers.autoscaling.enabled $.Values.autoscaling.enabled $.Values.controllers.enabled -}}
{{- if or $scaled (gt (include "agents.fewestPods" (dict "root" $ "component" $component) | int64) 1) (include "agents.isRollout" (dict "root" $ "component" $component)) }}
- controller.leaderElection.enabled is false, so two pods would both write: keep one replica without autoscaling and progressiveDelivery, or set it to true
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "agents.wrong.retention" -}}
{{- $controller := .Values.controller -}}
{{- $names := list "jobTtlSecondsAfterFinished" "jobTtlSeconds" "jobTTLSeconds" -}}
{{- $said := list -}}
{{- $numbers := list -}}
{{- range $names -}}
{{- if not (kindIs "invalid" (index $controller .)) -}}
{{- $said = append $said (printf "controller.%s is %d" . (int64 (index $controller .))) -}}
{{- $numbers = append $numbers (int64 (index $controller .)) -}}
{{- end -}}
{{- end -}}
{{- if gt (len (uniq $numbers)) 1 }}
- {{ join " and " $said }}, and they are one value: set controller.jobTtlSecondsAfterFinished alone, or set it to null
{{- end -}}
{{- $job := include "agents.jobTtl" . | int64 -}}
{{- $logs := int64 $controller.logRetentionSeconds -}}
{{- $run := int64 $controller.agentRunRetentionSeconds -}}
{{- if and $run (gt $job $run) }}
- a Job would be kept for {{ $job }} s (controller.jobTtlSecondsAfterFinished) and its run for {{ $run }} s (controller.agentRunRetentionSeconds), with which it goes: make the second at least as long
{{- end -}}
{{- if and $run (gt $logs $run) }}
- archived logs would be kept for {{ $logs }} s (controller.logRetentionSeconds) and their run for {{ $run }} s (controller.agentRunRetentionSeconds): make the second at least as long
{{- end -}}
{{- if and $logs (gt $job $logs) }}
- a Job would be kept for {{ $job }} s (controller.jobTtlSecondsAfterFinished) and its archived logs for {{ $logs }} s (controller.logRetentionSeconds): make the second at least as long
{{- end -}}
{{- end -}}

{{- define "agents.wrong.database" -}}
{{- with .Values.database -}}
{{- if and .createSecret.enabled (not .url) }}
- database.createSecret.enabled makes a Secret from database.url, which is empty: set it, or use database.secretRef.name
{{- end -}}
{{- if and .url .secretRef.name }}
- database.url and database.secretRef.name both say where the database is: set one of them
{{- end -}}
{{- end -}}
{{- $controllers := include "agents.env.map" (dict "root" . "component" "controllers") | fromJson -}}
{{- if hasKey $controllers "DATABASE_URL" -}}
{{- if and (not .Values.controlPlane.enabled) (eq (dig "JANGAR_MIGRATIONS" "value" "" $controllers) "skip") }}
- there is a database and controlPlane.enabled is false, so nobody would make its tables: set controllers.env.vars.JANGAR_MIGRATIONS to auto
{{- end -}}
{{- else if .Values.database.caSecret.name }}
- database.caSecret.name is set and there is no database: set database.secretRef.name to a Secret with its address, or database.url
{{- end -}}
{{- include "agents.wrong.databaseSecret" . -}}
{{- end -}}

{{- /* A Secret that a pod needs and that is not there would only be seen later, in a pod that does not start. Where no cluster is asked,
nothing is found at all; the account that every namespace has tells that apart. With another namespace than the release's, whoever
installs may not be allowed to look. */ -}}
{{- define "agents.wrong.databaseSecret" -}}
{{- $namespace := .Release.Namespace -}}
{{- if and .Values.database.secretRef.name (eq $namespace (include "agents.namespace" .)) (lookup "v1" "ServiceAccount" $namespace "default") -}}
{{- with .Values.database.secretRef -}}
{{- $secret := lookup "v1" "Secret" $namespace .name -}}
{{- if not $secret }}
- database.secretRef.name is {{ .name }}, and there is no such Secret in the namespace {{ $namespace }}: create it first, with the address of the database under the key {{ default "url" .key }}
{{- else if not (hasKey (default dict $secret.data) (default "url" .key)) }}
- database.secretRef.key is {{ default "url" .key }}, which the Secret {{ .name }} does not have: name one of {{ keys (default dict $secret.data) | sortAlpha | join ", " }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Variables that other objects of this chart agree with. Another value in a map of variables would part the two. */ -}}
{{- define "agents.wrong.env" -}}
{{- $owned := dict
  "JANGAR_AGENTS_CONTROLLER_NAMESPACES" "controller.namespaces"
  "JANGAR_ORCHESTRATION_CONTROLLER_NAMESPACES" "orchestrationController.namespaces"
  "JANGAR_SUPPORTING_CONTROLLER_NAMESPACES" "supportingController.namespaces"
  "JANGAR_RBAC_CLUSTER_SCOPED" "rbac.clusterScoped"
  "JANGAR_LEADER_ELECTION_LEASE_NAME" "controller.leaderElection.leaseName"
  "JANGAR_LEADER_ELECTION_LEASE_NAMESPACE" "controller.leaderElection.leaseNamespace"
  "JANGAR_GRPC_PORT" "grpc.port"
  "JANGAR_TLS_CERT_FILE" "controlPlane.tls.secret.name"
  "JANGAR_TLS_KEY_FILE" "controlPlane.tls.secret.name"
  "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL" "controller.customRuntime.callbackUrl"
  "JANGAR_CUSTOM_RUNTIME_CALLBACK_LISTEN" "controller.customRuntime.callbackUrl"
  "JANGAR_POD_NAMESPACE" "nothing: the cluster sets it"
  "JANGAR_POD_UID" "nothing: the cluster sets it"
  "JANGAR_ROLLOUT_ROLE_FILE" "nothing: the chart sets it" -}}
{{- $map := dict -}}
{{- include "agents.env.fromValues" (dict "root" . "component" "controlPlane" "map" $map) -}}
{{- include "agents.env.fromValues" (dict "root" . "component" "controllers" "map" $map) -}}
{{- $lists := concat .Values.env.extra .Values.env.secrets .Values.env.config -}}
{{- $seen := list -}}
{{- range $lists -}}
{{- if has .name $seen }}
- {{ .name }} is named more than once in env.extra, env.secrets and env.config: keep one of them
{{- end -}}
{{- $seen = append $seen .name -}}
{{- if hasKey $owned .name }}
- {{ .name }} in env.extra, env.secrets or env.config is not for you to set: use {{ index $owned .name }}
{{- end -}}
{{- end -}}
{{- range $where, $vars := dict "env.vars" .Values.env.vars "controlPlane.env.vars" .Values.controlPlane.env.vars "controllers.env.vars" .Values.controllers.env.vars -}}
{{- range $name, $value := $vars -}}
{{- if not (regexMatch "^[A-Za-z_][A-Za-z0-9_]*$" $name) }}
- {{ $where }} has {{ $name | quote }}, which is no name of a variable: use letters, digits and underscores
{{- end -}}
{{- if ne $where "controllers.env.vars" -}}
{{- if and (eq $name "JANGAR_GRPC_ENABLED") (ne (has (include "agents.scalar" $value | lower) (list "1" "true" "yes" "on")) $.Values.grpc.enabled) }}
- {{ $where }} sets JANGAR_GRPC_ENABLED to {{ $value | quote }} and grpc.enabled is {{ $.Values.grpc.enabled }}, which the Service follows: use grpc.enabled
{{- end -}}
{{- if and (eq $name "JANGAR_GRPC_ADDRESS") (not (hasSuffix (printf ":%d" (int64 $.Values.grpc.port)) (include "agents.scalar" $value))) }}
- {{ $where }} sets JANGAR_GRPC_ADDRESS to {{ $value | quote }}, and the Service leads to port {{ int64 $.Values.grpc.port }}: use grpc.port
{{- end -}}
{{- end -}}
{{- if hasKey $owned $name -}}
{{- if ne (include "agents.scalar" $value) (dig $name "value" "" $map) }}
- {{ $where }} sets {{ $name }} to {{ $value | quote }}, which other objects of this chart would not follow: use {{ index $owned $name }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "agents.wrong.delivery" -}}
{{- $delivery := .Values.progressiveDelivery -}}
{{- if and (eq .Values.controller.jobController "jangar") (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) }}
- controller.jobController is jangar, which Kubernetes {{ .Capabilities.KubeVersion.Version }} does not know: leave it at kubernetes
{{- end -}}
{{- if $delivery.enabled -}}
{{- $delivered := list -}}
{{- range (include "agents.components" . | fromJson).list -}}
{{- if include "agents.isRollout" (dict "root" $ "component" .) }}{{ $delivered = append $delivered . }}{{ end -}}
{{- end -}}
{{- if not $delivered }}
- progressiveDelivery.enabled is true for no component that there is: set progressiveDelivery.components.{{ ternary "controllers" "controlPlane" .Values.controllers.enabled }} to true
{{- end -}}
{{- $have := .Capabilities.APIVersions.Has "argoproj.io/v1alpha1/Rollout" -}}
{{- $live := .Capabilities.APIVersions.Has "apps/v1/Deployment" -}}
{{- if and (not $have) (or (eq $delivery.crdCheck "always") (and (eq $delivery.crdCheck "auto") $live)) }}
- progressiveDelivery.enabled needs the kind Rollout, which the cluster does not have: install Argo Rollouts first, or set progressiveDelivery.crdCheck to never
{{- end -}}
{{- $surge := toString $delivery.maxSurge | trimSuffix "%" -}}
{{- $unavailable := toString $delivery.maxUnavailable | trimSuffix "%" -}}
{{- if and (eq $surge "0") (eq $unavailable "0") }}
- progressiveDelivery.maxSurge and maxUnavailable are both 0, so nothing could ever change: set maxSurge to 1
{{- end -}}
{{- range (include "agents.components" . | fromJson).list -}}
{{- if and (eq $surge "0") (include "agents.isRollout" (dict "root" $ "component" .)) (eq (include "agents.fewestPods" (dict "root" $ "component" .)) "1") }}
- progressiveDelivery.maxSurge is 0 and {{ . }} has a single pod, so a canary would replace it or get no pod at all: set maxSurge to 1
{{- end -}}
{{- end -}}
{{- $weight := 0 -}}
{{- range $index, $step := $delivery.canarySteps -}}
{{- if hasKey $step "setWeight" }}{{ $weight = int64 $step.setWeight }}{{ end -}}
{{- if and (or (hasKey $step "pause") (hasKey $step "analysis")) (eq (int64 $weight) 0) }}
- progressiveDelivery.canarySteps[{{ $index }}] waits before any weight is set, so there would be no canary to look at: put {setWeight: 25} before it
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "agents.wrong.extras" -}}
{{- with .Values.versionControlProvider -}}
{{- if .enabled -}}
{{- if and (eq .auth.method "token") (not .auth.token.secretRef.name) }}
- versionControlProvider.auth.method is token and there is none: set versionControlProvider.auth.token.secretRef.name, or the method to none
{{- end -}}
{{- if and (eq .auth.method "app") (not (and .auth.app.appId .auth.app.installationId .auth.app.privateKeySecretRef.name)) }}
- versionControlProvider.auth.method is app: set versionControlProvider.auth.app.appId, installationId and privateKeySecretRef.name
{{- end -}}
{{- if and (eq .auth.method "ssh") (not .auth.ssh.privateKeySecretRef.name) }}
- versionControlProvider.auth.method is ssh: set versionControlProvider.auth.ssh.privateKeySecretRef.name
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.argocdHooks -}}
{{- if and .enabled .postSync.enabled -}}
{{- if not (and (dig "metadata" "name" "" .smoke.agentRun) .smoke.agentRun.spec) }}
- argocdHooks.enabled needs the run to start: give argocdHooks.smoke.agentRun a metadata.name and a spec
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Release.IsUpgrade (include "agents.lacks" (dict "root" . "kind" "agents.proompteng.ai/v1alpha1/AgentRun")) }}
- the cluster does not have the kinds of Jangar: kubectl apply --server-side --force-conflicts -f charts/agents/crds
{{- end -}}
{{- end -}}

{{- define "agents.validate" -}}
{{- $wrong := "" -}}
{{- range list "workloads" "scope" "retention" "database" "env" "delivery" "extras" -}}
{{- $wrong = printf "%s%s" $wrong (include (printf "agents.wrong.%s" .) $) -}}
{{- end -}}
{{- if $wrong }}{{ fail (printf "the values cannot be used:%s" $wrong) }}{{ end -}}
{{- end -}}
