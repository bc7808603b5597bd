{{- /* Names, labels, images and small things that several templates need. */ -}}

{{- define "ebs.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* Part of every selector: never to be changed for an installation that exists. */ -}}
{{- define "ebs.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ebs.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ebs.ownLabels" -}}
{{ include "ebs.selectorLabels" . }}
app.kubernetes.io/component: csi-driver
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Of every object. */ -}}
{{- define "ebs.labels" -}}
{{ include "ebs.ownLabels" . }}
{{- include "ebs.foreignLabels" .Values.customLabels -}}
{{- end -}}

{{- /* Of a pod: a dict of root, app and labels, which are the user's. */ -}}
{{- define "ebs.podLabels" -}}
app: {{ .app }}
{{ include "ebs.ownLabels" .root }}
{{- include "ebs.foreignLabels" (merge dict (.labels | default dict) (.root.Values.customLabels | default dict)) -}}
{{- end -}}

{{- /* The user's labels, without those that are the chart's: a selector must go on to match. */ -}}
{{- define "ebs.foreignLabels" -}}
{{- $own := list "app" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "helm.sh/chart" -}}
{{- range $key, $value := . }}
{{- if not (has $key $own) }}
{{ $key }}: {{ $value | toString | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ebs.nodeNamespace" -}}
{{- .Values.node.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- /* One of our images: list of the root and the key in .Values.images. */ -}}
{{- define "ebs.image" -}}
{{- $root := index . 0 -}}
{{- $own := index $root.Values.images (index . 1) | default dict -}}
{{- $repository := $own.repository | default (printf "%s-%s" $root.Values.image.repository (index . 1 | kebabcase)) -}}
{{- $tag := $own.tag | default $root.Values.image.tag | default (printf "v%s" $root.Chart.AppVersion) -}}
{{- include "ebs.inRegistry" (list $root $repository) }}{{ include "ebs.version" (dict "tag" $tag "digest" $own.digest) -}}
{{- end -}}

{{- /* Which image of a repository: a dict of tag and digest, which wins. */ -}}
{{- define "ebs.version" -}}
{{- if .digest -}}@{{ .digest }}{{- else -}}:{{ .tag }}{{- end -}}
{{- end -}}

{{- /* A repository in its registry: list of the root and the repository. One that begins with a
       registry, a name with a dot or a port, stays as it is. */ -}}
{{- define "ebs.inRegistry" -}}
{{- $registry := (index . 0).Values.image.containerRegistry | default "" | trimSuffix "/" -}}
{{- if and $registry (not (include "ebs.registryOf" (index . 1))) -}}{{ $registry }}/{{- end -}}
{{ index . 1 }}
{{- end -}}

{{- define "ebs.registryOf" -}}
{{- regexFind "^(localhost|[^/]*[.:][^/]*)/" . -}}
{{- end -}}

{{- define "ebs.pullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "map" . | ternary (get (kindIs "map" . | ternary . dict) "name") . }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- /* The second map over the first, at every depth. Unlike sprig's, it takes false and 0. */ -}}
{{- define "ebs.over" -}}
{{- $out := deepCopy (index . 0 | default dict) -}}
{{- range $key, $value := index . 1 -}}
  {{- if and (kindIs "map" $value) (kindIs "map" (get $out $key)) -}}
    {{- $_ := set $out $key (include "ebs.over" (list (get $out $key) $value) | fromYaml) -}}
  {{- else -}}
    {{- $_ := set $out $key $value -}}
  {{- end -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}

{{- /* Arguments: those of the chart (a list), then the user's. One of the user's takes the place of
       the chart's of that name; those of a group (the third item, a list of names) go together. */ -}}
{{- define "ebs.args" -}}
{{- $given := dict -}}
{{- range index . 1 -}}
  {{- $_ := set $given (splitList "=" . | first | trimPrefix "-" | trimPrefix "-" | splitList " " | first) true -}}
{{- end -}}
{{- $group := list -}}
{{- if gt (len .) 2 -}}
  {{- range index . 2 -}}{{- if hasKey $given . -}}{{- $group = list "met" -}}{{- end -}}{{- end -}}
  {{- if $group -}}{{- $group = index . 2 -}}{{- end -}}
{{- end -}}
{{- $all := list -}}
{{- range index . 0 -}}
  {{- $name := splitList "=" . | first | trimPrefix "--" -}}
  {{- if not (or (hasKey $given $name) (has $name $group)) -}}{{- $all = append $all . -}}{{- end -}}
{{- end -}}
{{- toYaml (concat $all (index . 1 | default list)) -}}
{{- end -}}

{{- /* Variables: those of the chart (a list), then the user's, which take the place of those
       of the same name. */ -}}
{{- define "ebs.env" -}}
{{- $given := dict -}}
{{- range index . 1 -}}{{- $_ := set $given .name true -}}{{- end -}}
{{- $all := list -}}
{{- range index . 0 -}}{{- if not (hasKey $given .name) -}}{{- $all = append $all . -}}{{- end -}}{{- end -}}
{{- with concat $all (index . 1 | default list) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- /* Affinity, with the architectures of the images required in every term: list of the root
       and the value. */ -}}
{{- define "ebs.affinity" -}}
{{- $architectures := (index . 0).Values.images.architectures -}}
{{- $affinity := deepCopy (index . 1 | default dict) -}}
{{- if $architectures -}}
  {{- $arch := dict "key" "kubernetes.io/arch" "operator" "In" "values" $architectures -}}
  {{- $node := get $affinity "nodeAffinity" | default dict -}}
  {{- $required := get $node "requiredDuringSchedulingIgnoredDuringExecution" | default dict -}}
  {{- $terms := list -}}
  {{- range get $required "nodeSelectorTerms" | default (list dict) -}}
    {{- $terms = append $terms (set . "matchExpressions" (append (.matchExpressions | default list) $arch)) -}}
  {{- end -}}
  {{- $_ := set $required "nodeSelectorTerms" $terms -}}
  {{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
  {{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* A strategy of updates. The default's rollingUpdate stays beside a type of the user's, and
       Kubernetes refuses it beside Recreate. */ -}}
{{- define "ebs.strategy" -}}
{{- $own := . | default dict -}}
{{- if ne ($own.type | default "RollingUpdate") "RollingUpdate" -}}{{- $own = omit $own "rollingUpdate" -}}{{- end -}}
{{- with $own }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "ebs.hasSnapshots" -}}
{{- if or .Values.sidecars.snapshotter.forceEnable (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1") -}}yes{{- end -}}
{{- end -}}

{{- /* The version of VolumeAttributesClass that the cluster serves: before Kubernetes 1.34 a beta, which
       somebody has to enable. */ -}}
{{- define "ebs.attributesClassVersion" -}}
{{- if semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version -}}storage.k8s.io/v1
{{- else if and (semverCompare ">=1.31.0-0" .Capabilities.KubeVersion.Version) (.Capabilities.APIVersions.Has "storage.k8s.io/v1beta1") -}}storage.k8s.io/v1beta1
{{- end -}}
{{- end -}}

{{- define "ebs.hasMonitors" -}}
{{- .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" | ternary "yes" "" -}}
{{- end -}}

{{- /* Where a port is served. */ -}}
{{- define "ebs.listen" -}}
{{- $address := (index . 0).Values.listenAddress -}}
{{- if contains ":" $address -}}[{{ $address }}]{{- else -}}{{ $address }}{{- end -}}:{{ index . 1 }}
{{- end -}}

{{- /* A word that YAML may have read as a boolean: off, on. */ -}}
{{- define "ebs.word" -}}
{{- if kindIs "bool" . -}}{{- ternary "on" "off" . -}}{{- else -}}{{- . -}}{{- end -}}
{{- end -}}

{{- define "ebs.verbosity" -}}
{{- (index . 0).Values.debugLogs | ternary 7 (index . 1 | int) -}}
{{- end -}}
