{{- define "labels" -}}
{{ include "selector" . }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: csi-driver
app.kubernetes.io/managed-by: {{ .Values.labels.managedBy | default .Release.Service }}
{{- end -}}

{{- define "selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
{{- if .Values.labels.release }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- end -}}
