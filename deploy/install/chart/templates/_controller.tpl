{{- /* Environment of the container ebs-plugin of the controller: the chart's, then the user's. */ -}}
{{- define "ebs.controllerEnv" -}}
{{- $controller := .Values.controller -}}
{{- $env := list -}}
{{- $safe := dict "name" "ebs-csi-safe-detach" -}}
{{- $env = append $env (dict "name" "SAFE_DETACH_GATE" "valueFrom" (dict "configMapKeyRef" (merge (dict "key" "gate") $safe))) -}}
{{- $env = append $env (dict "name" "SAFE_DETACH_MODE" "valueFrom" (dict "configMapKeyRef" (merge (dict "key" "mode") $safe))) -}}
{{- $env = append $env (dict "name" "FAILOVER" "valueFrom" (dict "configMapKeyRef" (merge (dict "key" "failover") $safe))) -}}
{{- if $controller.region -}}
  {{- $env = append $env (dict "name" "AWS_REGION" "value" $controller.region) -}}
{{- else -}}
  {{- /* Kubernetes 1.35 and later copy the node's label to the pod; before that it is empty. */ -}}
  {{- $label := dict "fieldPath" "metadata.labels['topology.kubernetes.io/region']" -}}
  {{- $env = append $env (dict "name" "NODE_REGION" "valueFrom" (dict "fieldRef" $label)) -}}
{{- end -}}
{{- with .Values.awsAccessSecret -}}
  {{- $id := dict "name" .name "key" .keyId "optional" true -}}
  {{- $key := dict "name" .name "key" .accessKey "optional" true -}}
  {{- $env = append $env (dict "name" "AWS_ACCESS_KEY_ID" "valueFrom" (dict "secretKeyRef" $id)) -}}
  {{- $env = append $env (dict "name" "AWS_SECRET_ACCESS_KEY" "valueFrom" (dict "secretKeyRef" $key)) -}}
{{- end -}}
{{- $endpoint := dict "name" "aws-meta" "key" "endpoint" "optional" true -}}
{{- $env = append $env (dict "name" "AWS_EC2_ENDPOINT" "valueFrom" (dict "configMapKeyRef" $endpoint)) -}}
{{- if .Values.fips -}}
  {{- $env = append $env (dict "name" "AWS_USE_FIPS_ENDPOINT" "value" "true") -}}
{{- end -}}
{{- $env = concat $env (include "ebs.proxy" . | fromYamlArray) -}}
{{- with ($controller.otelTracing).otelServiceName -}}
  {{- $env = append $env (dict "name" "OTEL_SERVICE_NAME" "value" .) -}}
{{- end -}}
{{- with ($controller.otelTracing).otelExporterEndpoint -}}
  {{- $env = append $env (dict "name" "OTEL_EXPORTER_OTLP_ENDPOINT" "value" .) -}}
{{- end -}}
{{- include "ebs.env" (list $env $controller.env) -}}
{{- end -}}

{{- /* CSIDriver.nodeAllocatableUpdatePeriodSeconds; empty leaves it out. */ -}}
{{- define "ebs.allocatablePeriod" -}}
{{- $period := .Values.nodeAllocatableUpdatePeriodSeconds | default 0 | int -}}
{{- if and (ne $period 0) (semverCompare ">=1.33.0-0" .Capabilities.KubeVersion.Version) -}}
{{- eq $period -1 | ternary 10 $period -}}
{{- end -}}
{{- end -}}

{{- /* The metrics ports of the controller's pod by the names of their Services, which are those of the
       Go driver's chart; node-lifecycle is new. */ -}}
{{- define "ebs.controllerPorts" -}}
ebs-csi-controller: {{ regexFind "[0-9]+$" (.Values.controller.httpEndpoint | default ":3301") }}
{{- $ports := dict "csi-provisioner" 3302 "csi-attacher" 3303 "csi-resizer" 3304 "csi-snapshotter" 3306 "volumemodifier" 3307 }}
{{- range include "ebs.sidecars" . | splitList "," }}
ebs-csi-controller-{{ trimPrefix "csi-" . }}: {{ get $ports . }}
{{- end }}
ebs-csi-controller-node-lifecycle: 3308
{{- end -}}
