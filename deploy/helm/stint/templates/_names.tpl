{{- define "stint.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "stint.selector" -}}
app.kubernetes.io/name: stint
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "stint.labels" -}}
{{ include "stint.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "stint.rules" -}}
{{- default (printf "%s-rules" (include "stint.name" .)) .Values.rules.existingConfigMap -}}
{{- end -}}

{{- define "stint.tokens" -}}
{{- default (printf "%s-tokens" (include "stint.name" .)) .Values.tokens.existingSecret -}}
{{- end -}}

{{- /* Not empty where no tokens are given, so that some are drawn. */ -}}
{{- define "stint.drawn" -}}
{{- with .Values.tokens -}}
{{- if not (or .existingSecret .callers .operators .metrics) }}drawn{{ end -}}
{{- end -}}
{{- end -}}

{{- define "stint.metadata" -}}
name: {{ include "stint.name" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels: {{- include "stint.labels" . | nindent 2 }}
{{- end -}}

{{- /* What the schema cannot say. */ -}}
{{- define "stint.check" -}}
{{- $name := include "stint.name" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%q cannot be the name of a Service, which begins with a letter and has no dot: set nameOverride, or name the release otherwise" $name) -}}
{{- end -}}
{{- $several := or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled -}}
{{- $store := or .Values.store.url .Values.store.existingSecret -}}
{{- if and $several (not $store) (not .Values.separate) -}}
{{- fail "several pods without a store: each would let a whole limit pass. Set store.url or store.existingSecret; or separate: true, if that is meant" -}}
{{- end -}}
{{- if and .Values.rules.existingConfigMap .Values.rules.existingSecret -}}
{{- fail "rules.existingConfigMap and rules.existingSecret: give one" -}}
{{- end -}}
{{- if and .Values.store.url .Values.store.existingSecret -}}
{{- fail "store.url and store.existingSecret: give one" -}}
{{- end -}}
{{- if and .Values.tls.clientCA (not .Values.tls.existingSecret) -}}
{{- fail "tls.clientCA goes with tls.existingSecret, whose ca.crt it is" -}}
{{- end -}}
{{- if and .Values.tls.clientCA .Values.serviceMonitor.enabled -}}
{{- fail "tls.clientCA and serviceMonitor.enabled: Prometheus shows no certificate by this ServiceMonitor; write one of your own" -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" -}}
{{- end -}}
{{- if not (or .Values.autoscaling.cpu .Values.autoscaling.denials.enabled) -}}
{{- fail "autoscaling.enabled: by autoscaling.cpu, by autoscaling.denials, or by both" -}}
{{- end -}}
{{- end -}}
{{- end -}}
