{{/* Names, labels and images. `component` is "controlPlane" or "controllers" throughout. */}}

{{- define "agents.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* 43, so that the longest suffix (`-controllers-metrics`) still fits into the 63 of a Service. */ -}}
{{- define "agents.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 43 | trimSuffix "-" -}}
{{- else if contains (include "agents.name" .) .Release.Name -}}
{{- .Release.Name | trunc 43 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "agents.name" .) | trunc 43 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "agents.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "agents.workloadName" -}}
{{- include "agents.fullname" .root }}{{ if eq .component "controllers" }}-controllers{{ end -}}
{{- end -}}

{{- /* What pods of a component are selected by: it never changes, for selectors cannot. */ -}}
{{- define "agents.selectorLabels" -}}
app.kubernetes.io/name: {{ include "agents.name" .root }}{{ if eq .component "controllers" }}-controllers{{ end }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "agents.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: jangar
{{- end -}}

{{- /* Labels of an object that belongs to one component. */ -}}
{{- define "agents.componentLabels" -}}
{{ include "agents.selectorLabels" . }}
{{ include "agents.commonLabels" .root }}
{{- end -}}

{{- /* Labels of an object that belongs to none. */ -}}
{{- define "agents.labels" -}}
app.kubernetes.io/name: {{ include "agents.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "agents.commonLabels" . }}
{{- end -}}

{{- /* Which components are rendered, as a list in JSON below "list". */ -}}
{{- define "agents.components" -}}
{{- $list := list -}}
{{- if .Values.controlPlane.enabled }}{{ $list = append $list "controlPlane" }}{{ end -}}
{{- if .Values.controllers.enabled }}{{ $list = append $list "controllers" }}{{ end -}}
{{- dict "list" $list | toJson -}}
{{- end -}}

{{- /* Whether the controllers run in the pods of a component. */ -}}
{{- define "agents.hasControllers" -}}
{{- if or (eq .component "controllers") (not .root.Values.controllers.enabled) -}}yes{{- end -}}
{{- end -}}

{{- /* REPOSITORY[:TAG][@DIGEST] of an image given as repository, tag and digest. */ -}}
{{- define "agents.imageReference" -}}
{{- .repository }}{{ with .tag }}:{{ . }}{{ end }}{{ with .digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* The image of a component, its policy and Secrets: its own word, else that of `image`. A digest belongs to the repository
and tag beside it, so it is not taken over by others. */ -}}
{{- define "agents.image" -}}
{{- $own := (index .root.Values .component).image -}}
{{- $shared := .root.Values.image -}}
{{- $digest := $own.digest -}}
{{- if not (or $own.repository $own.tag $own.digest) }}{{ $digest = $shared.digest }}{{ end -}}
{{- dict "repository" (default $shared.repository $own.repository) "tag" (default (default .root.Chart.AppVersion $shared.tag) $own.tag) "digest" $digest | include "agents.imageReference" -}}
{{- end -}}

{{- define "agents.pullPolicy" -}}
{{- default .root.Values.image.pullPolicy (index .root.Values .component).image.pullPolicy -}}
{{- end -}}

{{- define "agents.imagePullSecrets" -}}
{{- with default .root.Values.image.pullSecrets (index .root.Values .component).image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The account with the rights of the controllers. */ -}}
{{- define "agents.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-sa" (include "agents.fullname" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* A control plane beside controllers needs none of their rights to write, and gets an account of its own. */ -}}
{{- define "agents.componentServiceAccountName" -}}
{{- if and (eq .component "controlPlane") .root.Values.controllers.enabled .root.Values.serviceAccount.create -}}
{{- include "agents.fullname" .root }}-control-plane
{{- else -}}
{{- include "agents.serviceAccountName" .root -}}
{{- end -}}
{{- end -}}

{{- /* Whether an uninstall lets go of what is held. The account of the release is gone by then, and whoever gives rights to it cannot have given
them to the hook's. */ -}}
{{- define "agents.letsGo" -}}
{{- if and .Values.uninstall.releaseJobs.enabled (or .Values.rbac.create (not .Values.serviceAccount.create)) -}}yes{{- end -}}
{{- end -}}

{{- define "agents.runnerServiceAccountName" -}}
{{- if .Values.runnerServiceAccount.create -}}
{{- default (printf "%s-runner" (include "agents.fullname" .)) .Values.runnerServiceAccount.name -}}
{{- else -}}
{{- .Values.runnerServiceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "agents.databaseSecretName" -}}
{{- default (printf "%s-db" (include "agents.fullname" .)) .Values.database.createSecret.name -}}
{{- end -}}

{{- define "agents.leaseNamespace" -}}
{{- default (include "agents.namespace" .) .Values.controller.leaderElection.leaseNamespace -}}
{{- end -}}

{{- /* The namespaces of one controller, as a list in JSON below "list": its own, else those of `controller`, else the release's. */ -}}
{{- define "agents.namespacesOf" -}}
{{- $list := .own -}}
{{- if not $list }}{{ $list = .root.Values.controller.namespaces }}{{ end -}}
{{- if not $list }}{{ $list = list (include "agents.namespace" .root) }}{{ end -}}
{{- dict "list" $list | toJson -}}
{{- end -}}

{{- /* All namespaces in which there are objects to look after, without `*`. */ -}}
{{- define "agents.watchedNamespaces" -}}
{{- $all := list -}}
{{- range list .Values.controller .Values.orchestrationController .Values.supportingController -}}
{{- $all = concat $all (include "agents.namespacesOf" (dict "root" $ "own" .namespaces) | fromJson).list -}}
{{- end -}}
{{- $named := without (uniq $all) "*" -}}
{{- if not $named }}{{ $named = list (include "agents.namespace" .) }}{{ end -}}
{{- dict "list" (sortAlpha $named) | toJson -}}
{{- end -}}

{{- /* "yes" if every namespace is looked after. */ -}}
{{- define "agents.watchesAll" -}}
{{- range list .Values.controller .Values.orchestrationController .Values.supportingController -}}
{{- if has "*" (include "agents.namespacesOf" (dict "root" $ "own" .namespaces) | fromJson).list }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{- /* How many pods a component has at least: "1" or "2" is what matters. */ -}}
{{- define "agents.fewestPods" -}}
{{- $own := index .root.Values .component -}}
{{- $scaled := .root.Values.autoscaling -}}
{{- if eq .component "controllers" }}{{ $scaled = $own.autoscaling }}{{ end -}}
{{- if $scaled.enabled -}}
{{- int64 $scaled.minReplicas -}}
{{- else -}}
{{- include "agents.replicas" . -}}
{{- end -}}
{{- end -}}

{{- define "agents.replicas" -}}
{{- if eq .component "controllers" -}}
{{- int64 .root.Values.controllers.replicaCount -}}
{{- else if kindIs "invalid" .root.Values.controlPlane.replicaCount -}}
{{- int64 .root.Values.replicaCount -}}
{{- else -}}
{{- int64 .root.Values.controlPlane.replicaCount -}}
{{- end -}}
{{- end -}}

{{- /* A duration of one unit in seconds, for expressions that cannot have a unit. */ -}}
{{- define "agents.seconds" -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if eq $unit "ms" }}{{ div $number 1000 }}{{ else }}{{ mul $number (get (dict "s" 1 "m" 60 "h" 3600) $unit) }}{{ end -}}
{{- end -}}

{{- /* Whether a real API server is asked, and it lacks a kind. Without one, only groups and versions are known, never kinds. */ -}}
{{- define "agents.lacks" -}}
{{- if and (.root.Capabilities.APIVersions.Has "apps/v1/Deployment") (not (.root.Capabilities.APIVersions.Has .kind)) -}}yes{{- end -}}
{{- end -}}
