{{- /* Values that were given and have no effect, or another one than in the Go driver's chart:
       a line for each. */ -}}

{{- define "ebs.notes" -}}
{{- $values := .Values -}}
{{- $controller := $values.controller -}}
{{- $notes := list -}}
{{- if $values.fullnameOverride -}}{{- $notes = append $notes "fullnameOverride has no effect: names are fixed." -}}{{- end -}}
{{- if ($values.helmTester).image -}}{{- $notes = append $notes "helmTester.image has no effect: the test pod runs the controller's own image." -}}{{- end -}}
{{- if not (dig "batching" true $controller) -}}{{- $notes = append $notes "controller.batching has no effect: calls to EC2 are always shared." -}}{{- end -}}
{{- if $controller.nameOverride -}}{{- $notes = append $notes "controller.nameOverride has no effect." -}}{{- end -}}
{{- $kept := include "ebs.keptVariables" . | splitList " " -}}
{{- range $controller.env -}}
  {{- $name := .name -}}
  {{- $keeps := "" -}}
  {{- range $kept -}}{{- if hasPrefix . $name -}}{{- $keeps = "yes" -}}{{- end -}}{{- end -}}
  {{- if not $keeps -}}{{- $notes = append $notes (printf "controller.env %s has no effect: the controller keeps only variables that begin with %s." $name (join ", " $kept)) -}}{{- end -}}
{{- end -}}
{{- if $values.nodeComponentOnly -}}
  {{- $notes = append $notes "nodeComponentOnly: a controller has to be installed beside it; without one startup taints stay on the nodes, and node facts come from the pods' own labels or from instance metadata." -}}
  {{- if or $values.storageClasses $values.volumeSnapshotClasses $values.volumeAttributesClasses $values.defaultStorageClass.enabled -}}
    {{- $notes = append $notes "nodeComponentOnly: classes are left out, since the release with the controller has them." -}}
  {{- end -}}
{{- end -}}
{{- if and $values.volumeSnapshotClasses (not (include "ebs.hasSnapshots" .)) -}}
  {{- $notes = append $notes "volumeSnapshotClasses are left out: the cluster has no VolumeSnapshot definitions. Install them, or set sidecars.snapshotter.forceEnable." -}}
{{- end -}}
{{- if and $values.groupSnapshots.enabled (not $values.nodeComponentOnly) (not (include "ebs.hasSnapshots" .)) -}}
  {{- $notes = append $notes "groupSnapshots.enabled has no effect: the cluster has no VolumeSnapshot definitions, so csi-snapshotter is left out." -}}
{{- end -}}
{{- if and $values.volumeAttributesClasses (not (include "ebs.attributesClassVersion" .)) -}}
  {{- $notes = append $notes "volumeAttributesClasses are left out: the cluster does not serve VolumeAttributesClass as v1 (Kubernetes 1.34)." -}}
{{- end -}}
{{- if and $values.prometheusRule.enabled (not (include "ebs.hasMonitors" .)) -}}
  {{- $notes = append $notes "prometheusRule is left out: the cluster has no PrometheusRule definition." -}}
{{- end -}}
{{- if and $values.onboarding.enabled (not $values.nodeComponentOnly) (not (include "ebs.hasPolicies" .)) (or ($values.onboarding.nodeFacts).labels $values.onboarding.drain) -}}
  {{- $notes = append $notes "onboarding.nodeFacts and onboarding.drain have no effect without admissionPolicies (Kubernetes 1.30): the right to annotate the nodes' pods would extend to every pod of their namespace. Nodes learn their zone from Kubernetes 1.35 or from instance metadata; preStop hooks do not wait." -}}
{{- end -}}
{{- if and (ne (include "ebs.word" $values.safeDetach.failover) "off") (not $values.nodeComponentOnly) (not (include "ebs.hasPolicies" .)) -}}
  {{- $notes = append $notes "safeDetach.failover without admissionPolicies (Kubernetes 1.30): nothing limits its right to delete pods and VolumeAttachments to nodes that are not Ready, nor who may order a detach." -}}
{{- end -}}
{{- range $key := list "livenessProbe" "nodeDriverRegistrar" -}}
  {{- if get $values.sidecars $key -}}{{- $notes = append $notes (printf "sidecars.%s has no effect: the processes answer probes and register with kubelet by themselves." $key) -}}{{- end -}}
{{- end -}}
{{- if ($values.sidecars.metadataLabeler).enabled -}}
  {{- $notes = append $notes "sidecars.metadataLabeler has no effect: nodes are not labelled; attachments are counted on the node." -}}
{{- end -}}
{{- range $path, $node := include "ebs.nodes" . | fromYaml -}}
  {{- if $node.hostNetwork -}}{{- $notes = append $notes (printf "%s: hostNetwork is not needed: the agent denies itself the network." $path) -}}{{- end -}}
  {{- if and $node.hostNetwork $values.networkPolicy.enabled -}}{{- $notes = append $notes (printf "%s: networkPolicy does not bind pods of the host's network." $path) -}}{{- end -}}
  {{- if $node.otelTracing -}}{{- $notes = append $notes (printf "%s: otelTracing has no effect: nodes send no traces." $path) -}}{{- end -}}
  {{- if $node.dnsConfig -}}{{- $notes = append $notes (printf "%s: dnsConfig has no effect: nodes look up no name." $path) -}}{{- end -}}
  {{- if ne (toJson $node.probeDirVolume) (toJson (dict "emptyDir" dict)) -}}{{- $notes = append $notes (printf "%s: probeDirVolume has no effect: there is no registrar." $path) -}}{{- end -}}
  {{- if ($node.serviceAccount).disableMutation -}}{{- $notes = append $notes (printf "%s: serviceAccount.disableMutation: a node never changes its Node. As it meant in the Go driver, the startup taint stays, too; onboarding.taint says the same." $path) -}}{{- end -}}
{{- end -}}
{{- join "\n" $notes -}}
{{- end -}}

{{- /* The label of Pod Security Admission that each namespace needs or can have, and does not have: a line
       for each, "NAMESPACE LEVEL". The chart makes no namespace, and that of the release may hold
       pods of others, so labelling is left to the operator. */ -}}
{{- define "ebs.podSecurity" -}}
{{- $levels := dict -}}
{{- if and (not .Values.nodeComponentOnly) (ne .Release.Namespace "kube-system") -}}
  {{- $_ := set $levels .Release.Namespace "restricted" -}}
{{- end -}}
{{- range $_, $node := include "ebs.nodes" . | fromYaml -}}
  {{- if $node.enableLinux -}}
    {{- $_ := set $levels ($node.namespaceOverride | default $.Release.Namespace) "privileged" -}}
  {{- end -}}
{{- end -}}
{{- $lines := list -}}
{{- range $namespace, $level := $levels -}}
  {{- $labels := dig "metadata" "labels" dict (lookup "v1" "Namespace" "" $namespace | default dict) -}}
  {{- if ne (get $labels "pod-security.kubernetes.io/enforce") $level -}}
    {{- $lines = append $lines (printf "%s %s" $namespace $level) -}}
  {{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{- /* As policy/environment.toml has them. */ -}}
{{- define "ebs.keptVariables" -}}
AWS_ EC2_ HOME HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy LANG NODE_REGION OTEL_ RUST_ SSL_CERT_ TOKIO_ TZ
{{- end -}}

{{- /* The notes as comments of a rendered object. */ -}}
{{- define "ebs.notesAsComments" -}}
{{- range include "ebs.notes" . | splitList "\n" }}
{{- with . }}
# Noted: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
