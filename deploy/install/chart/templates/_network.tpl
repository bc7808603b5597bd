{{- /* Parts of the NetworkPolicies. */ -}}

{{- /* Where link-local services hand out credentials and metadata, as
       controller/ec2/src/sdk/connector.rs has them. */ -}}
{{- define "ebs.linkLocal" -}}
169.254.169.254/32 169.254.170.2/32 169.254.170.23/32 fd00:ec2::254/128 fd00:ec2::23/128
{{- end -}}

{{- /* Those of them that are instance metadata. */ -}}
{{- define "ebs.imds" -}}
169.254.169.254/32 fd00:ec2::254/128
{{- end -}}

{{- /* An egress rule: a list of the protocols, the ports and the CIDRs; no CIDRs are any address. */ -}}
{{- define "ebs.egressRule" -}}
{{- $protocols := index . 0 -}}
- ports:
  {{- range $port := index . 1 }}
  {{- range $protocols }}
  - {protocol: {{ . }}, port: {{ int $port }}}
  {{- end }}
  {{- end }}
  {{- with index . 2 }}
  to:
  {{- range . }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
  {{- end }}
{{- end -}}

{{- /* Egress to the host and port of a URL. A host that is a name may be any address. */ -}}
{{- define "ebs.egressToUrl" -}}
{{- $url := contains "://" . | ternary . (printf "http://%s" .) | urlParse -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "https" | ternary "443" "80") -}}
{{- $cidrs := list -}}
{{- if regexMatch "^[0-9.]+$" $url.hostname -}}{{- $cidrs = list (printf "%s/32" $url.hostname) -}}{{- end -}}
{{- if contains ":" $url.hostname -}}{{- $cidrs = list (printf "%s/128" $url.hostname) -}}{{- end -}}
{{- include "ebs.egressRule" (list (list "TCP") (list $port) $cidrs) -}}
{{- end -}}

{{- /* The URLs among variables: a list of the variables and a pattern of their names. */ -}}
{{- define "ebs.urlsOf" -}}
{{- $pattern := index . 1 -}}
{{- range index . 0 -}}
{{- if and (regexMatch $pattern .name) .value }}
- {{ .value | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What may reach the ports (a list) of pods: a list of the root and the ports. */ -}}
{{- define "ebs.metricsIngress" -}}
{{- $ports := index . 1 -}}
{{- if $ports -}}
- ports:
  {{- range $ports }}
  - {protocol: TCP, port: {{ int . }}}
  {{- end }}
  {{- with (index . 0).Values.networkPolicy.metricsFrom }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "ebs.controllerEgress" -}}
{{- $policy := .Values.networkPolicy -}}
{{- $urls := list -}}
{{- with .Values.proxy.http_proxy -}}{{- $urls = append $urls . -}}{{- end -}}
{{- with (.Values.controller.otelTracing).otelExporterEndpoint -}}{{- $urls = append $urls . -}}{{- end -}}
{{- $own := include "ebs.urlsOf" (list .Values.controller.env "(ENDPOINT(_URL(_[A-Z0-9]+)*)?|FULL_URI|HTTPS?_PROXY|https?_proxy)$") -}}
{{- $urls = concat $urls ($own | fromYamlArray) | uniq -}}
# DNS.
{{ include "ebs.egressRule" (list (list "UDP" "TCP") $policy.dnsPorts list) }}
# The API server.
{{ include "ebs.egressRule" (list (list "TCP") $policy.apiServer.ports $policy.apiServer.cidrs) }}
# EC2 and STS.
{{ include "ebs.egressRule" (list (list "TCP") $policy.aws.ports $policy.aws.cidrs) }}
# Credentials and instance metadata.
{{ include "ebs.egressRule" (list (list "TCP") (list 80) (include "ebs.linkLocal" . | splitList " ")) }}
{{- if eq (include "ebs.word" .Values.safeDetach.mode) "enforce" }}
# The nodes' agents, which say who holds a volume.
{{ include "ebs.egressRule" (list (list "TCP") (list 9808) list) }}
{{- end }}
{{- range $urls }}
# A proxy, a collector or an endpoint that the values name.
{{ include "ebs.egressToUrl" . }}
{{- end }}
{{- with $policy.controllerEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A dict of root and node. */ -}}
{{- define "ebs.nodeEgress" -}}
{{- $asks := contains "imds" (.node.metadataSources | default "imds") -}}
{{- $urls := include "ebs.urlsOf" (list .node.env "^AWS_EC2_METADATA_SERVICE_ENDPOINT$") | fromYamlArray -}}
{{- if and $asks (not $urls) }}
# Instance metadata, where the pod's labels do not tell the zone.
{{ include "ebs.egressRule" (list (list "TCP") (list 80) (include "ebs.imds" . | splitList " ")) }}
{{- end }}
{{- range $urls }}
# Instance metadata.
{{ include "ebs.egressToUrl" . }}
{{- end }}
{{- with .root.Values.networkPolicy.nodeEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
