{{/* Deployment or Rollout: the same name, selector and pods. {root, component} throughout. */}}

{{- define "agents.isRollout" -}}
{{- with .root.Values.progressiveDelivery -}}
{{- if and .enabled (index .components $.component) -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{- define "agents.workloadRef" -}}
{{- if include "agents.isRollout" . -}}
apiVersion: argoproj.io/v1alpha1
kind: Rollout
{{- else -}}
apiVersion: apps/v1
kind: Deployment
{{- end -}}
{{- end -}}

{{- define "agents.workload" -}}
{{- $scaled := ternary .root.Values.controllers.autoscaling.enabled .root.Values.autoscaling.enabled (eq .component "controllers") -}}
{{ include "agents.workloadRef" . }}
metadata:
  name: {{ include "agents.workloadName" . }}
  namespace: {{ include "agents.namespace" .root }}
  labels:
    {{- include "agents.componentLabels" . | nindent 4 }}
  annotations:
    # The other kind goes only when this one is healthy.
    argocd.argoproj.io/sync-options: PruneLast=true{{ if include "agents.isRollout" . }},SkipDryRunOnMissingResource=true{{ end }}
spec:
  {{- if not $scaled }}
  replicas: {{ include "agents.replicas" . }}
  {{- end }}
  minReadySeconds: {{ int64 .root.Values.minReadySeconds }}
  selector:
    matchLabels:
      {{- include "agents.selectorLabels" . | nindent 6 }}
  {{- if include "agents.isRollout" . }}
  {{- with .root.Values.progressiveDelivery }}
  progressDeadlineSeconds: {{ int64 .progressDeadlineSeconds }}
  progressDeadlineAbort: {{ .progressDeadlineAbort }}
  {{- if .rollbackWindow.revisions }}
  rollbackWindow:
    revisions: {{ int64 .rollbackWindow.revisions }}
  {{- end }}
  strategy:
    canary:
      maxSurge: {{ .maxSurge }}
      maxUnavailable: {{ .maxUnavailable }}
      # A pod reads its role from a file, which follows the label.
      canaryMetadata:
        labels:
          agents.proompteng.ai/rollout-role: canary
      stableMetadata:
        labels:
          agents.proompteng.ai/rollout-role: stable
      {{- with .canarySteps }}
      steps:
        {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- end }}
  {{- else if and (include "agents.hasControllers" .) (not .root.Values.controller.leaderElection.enabled) }}
  # Without a Lease nothing else keeps two pods from writing at once.
  strategy:
    type: Recreate
  {{- else }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  {{- end }}
  template:
    {{- include "agents.podTemplate" . | nindent 4 }}
{{- end -}}

{{- /* The same for both kinds, byte for byte: nothing here may ask which one it is for. */ -}}
{{- define "agents.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $own := index $values .component -}}
{{- $controllers := eq .component "controllers" -}}
{{- $leads := include "agents.hasControllers" . -}}
{{- $callbacks := and $values.controller.customRuntime.callbackUrl $leads -}}
{{- $ca := $values.database.caSecret.name -}}
{{- $trusted := $values.trustedCertificates.configMap -}}
{{- $tls := ternary "" $values.controlPlane.tls.secret.name $controllers -}}
metadata:
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  labels:
    {{- include "agents.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/part-of: jangar
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "agents.componentServiceAccountName" . }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int64 $values.terminationGracePeriodSeconds }}
  {{- include "agents.imagePullSecrets" . | nindent 2 | trimSuffix "\n  " }}
  {{- with $values.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
  - name: {{ include "agents.name" .root }}{{ if $controllers }}-controllers{{ end }}
    image: {{ include "agents.image" . | quote }}
    imagePullPolicy: {{ include "agents.pullPolicy" . }}
    {{- if $controllers }}
    args: [controllers, --listen, "0.0.0.0:8080"]
    {{- else }}
    args: [control-plane, --listen, "0.0.0.0:8080", --probes-listen, "0.0.0.0:8082", --linger, {{ min 5 (div (int64 $values.terminationGracePeriodSeconds) 5) | quote }}{{ if $leads }}, --with-controllers{{ end }}]
    {{- end }}
    {{- with $values.containerSecurityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
    - name: http
      containerPort: 8080
      protocol: TCP
    {{- if not $controllers }}
    {{- if $values.grpc.enabled }}
    - name: grpc
      containerPort: {{ int64 $values.grpc.port }}
      protocol: TCP
    {{- end }}
    # Nobody is asked for a token here, and requests of callers cannot take its place.
    - name: probes
      containerPort: 8082
      protocol: TCP
    {{- end }}
    {{- if $callbacks }}
    - name: callbacks
      containerPort: 8081
      protocol: TCP
    {{- end }}
    env:
      {{- include "agents.env" . | trim | nindent 4 }}
    {{- if or $values.envFromSecretRefs $values.envFromConfigMapRefs }}
    envFrom:
    {{- range $values.envFromSecretRefs }}
    - secretRef:
        name: {{ . }}
    {{- end }}
    {{- range $values.envFromConfigMapRefs }}
    - configMapRef:
        name: {{ . }}
    {{- end }}
    {{- end }}
    {{- range $name, $probe := dict "livenessProbe" $values.livenessProbe "readinessProbe" $values.readinessProbe }}
    {{- if $probe.enabled }}
    {{ $name }}:
      httpGet:
        path: {{ $probe.path }}
        port: {{ ternary "http" "probes" $controllers }}
      initialDelaySeconds: {{ int64 $probe.initialDelaySeconds }}
      periodSeconds: {{ int64 $probe.periodSeconds }}
      timeoutSeconds: {{ int64 $probe.timeoutSeconds }}
      failureThreshold: {{ int64 $probe.failureThreshold }}
    {{- end }}
    {{- end }}
    {{- with default $values.resources $own.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if or $leads $ca $trusted $tls $values.extraVolumeMounts }}
    volumeMounts:
    {{- if $leads }}
    - name: pod
      mountPath: /etc/jangar/pod
      readOnly: true
    {{- end }}
    {{- if $callbacks }}
    - name: custom-runtime-key
      mountPath: /etc/jangar/custom-runtime
      readOnly: true
    {{- end }}
    {{- if $ca }}
    - name: db-ca-cert
      mountPath: /etc/jangar/ca
      readOnly: true
    {{- end }}
    {{- if $trusted }}
    - name: trusted-certificates
      mountPath: /etc/jangar/trusted
      readOnly: true
    {{- end }}
    {{- if $tls }}
    - name: tls
      mountPath: /etc/jangar/tls
      readOnly: true
    {{- end }}
    {{- with $values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
  {{- if or $leads $ca $trusted $tls $values.extraVolumes }}
  volumes:
  {{- if $leads }}
  # A variable would keep the role that the pod began with; a file follows it.
  - name: pod
    downwardAPI:
      items:
      - path: rollout-role
        fieldRef:
          fieldPath: metadata.labels['agents.proompteng.ai/rollout-role']
  {{- end }}
  {{- if $callbacks }}
  - name: custom-runtime-key
    secret:
      secretName: {{ $values.controller.customRuntime.keySecret.name }}
      items:
      - key: {{ $values.controller.customRuntime.keySecret.key }}
        path: key
  {{- end }}
  {{- if $ca }}
  - name: db-ca-cert
    secret:
      secretName: {{ $values.database.caSecret.name }}
      items:
      - key: {{ $values.database.caSecret.key }}
        path: {{ $values.database.caSecret.key }}
  {{- end }}
  {{- if $trusted }}
  - name: trusted-certificates
    configMap:
      name: {{ $trusted }}
  {{- end }}
  {{- if $tls }}
  - name: tls
    secret:
      secretName: {{ $tls }}
  {{- end }}
  {{- range $values.extraVolumes }}
  - name: {{ .name }}
    {{- toYaml .volume | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
