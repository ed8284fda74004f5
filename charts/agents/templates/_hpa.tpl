{{- define "agents.hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "agents.workloadName" . }}
  namespace: {{ include "agents.namespace" .root }}
  labels:
    {{- include "agents.componentLabels" . | nindent 4 }}
spec:
  scaleTargetRef:
    {{- include "agents.workloadRef" . | nindent 4 }}
    name: {{ include "agents.workloadName" . }}
  minReplicas: {{ int64 .scaled.minReplicas }}
  maxReplicas: {{ int64 .scaled.maxReplicas }}
  metrics:
  - type: Resource
    resource:
      name: cpu
      target:
        type: Utilization
        averageUtilization: {{ int64 .scaled.targetCPUUtilizationPercentage }}
  {{- with .scaled.targetMemoryUtilizationPercentage }}
  - type: Resource
    resource:
      name: memory
      target:
        type: Utilization
        averageUtilization: {{ int64 . }}
  {{- end }}
{{- end -}}
