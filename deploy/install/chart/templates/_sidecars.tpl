{{- /* The stock sidecars of the controller's pod. */ -}}

{{- /* Their names, in the order of the pod: of those that are rendered. */ -}}
{{- define "ebs.sidecars" -}}
{{- $all := list "csi-provisioner" "csi-attacher" "csi-resizer" -}}
{{- if include "ebs.hasSnapshots" . -}}{{- $all = append $all "csi-snapshotter" -}}{{- end -}}
{{- if .Values.controller.volumeModificationFeature.enabled -}}{{- $all = append $all "volumemodifier" -}}{{- end -}}
{{- join "," $all -}}
{{- end -}}

{{- define "ebs.leaderElection" -}}
{{- $election := .leaderElection | default dict -}}
{{- if dig "enabled" true $election }}
- --leader-election=true
{{- with $election.leaseDuration }}
- --leader-election-lease-duration={{ . }}
{{- end }}
{{- with $election.renewDeadline }}
- --leader-election-renew-deadline={{ . }}
{{- end }}
{{- with $election.retryPeriod }}
- --leader-election-retry-period={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A container: a dict of root, name, key (in .Values.sidecars), port, args and optional
       env, group. */ -}}
{{- define "ebs.sidecar" -}}
{{- $root := .root -}}
{{- $controller := $root.Values.controller -}}
{{- $values := index $root.Values.sidecars .key -}}
{{- $args := list "--csi-address=/csi/csi.sock" (printf "--v=%s" (include "ebs.verbosity" (list $root $values.logLevel))) -}}
{{- $args = concat $args .args -}}
{{- if $controller.enableMetrics -}}
  {{- $args = append $args (printf "--http-endpoint=%s" (include "ebs.listen" (list $root .port))) -}}
{{- end -}}
{{- range include "ebs.leaderElection" $values | trim | splitList "\n" -}}
  {{- with trimPrefix "- " . -}}{{- $args = append $args . -}}{{- end -}}
{{- end -}}
- name: {{ .name }}
  image: {{ include "ebs.inRegistry" (list $root $values.image.repository) }}{{ include "ebs.version" $values.image }}
  imagePullPolicy: {{ $values.image.pullPolicy | default $root.Values.image.pullPolicy }}
  args:
    {{- include "ebs.args" (list $args $values.additionalArgs (.group | default list)) | nindent 4 }}
  {{- with include "ebs.env" (list (concat (.env | default list) (include "ebs.proxy" $root | fromYamlArray)) $values.env) }}
  env:
    {{- . | nindent 4 }}
  {{- end }}
  {{- if $controller.enableMetrics }}
  ports:
    - name: {{ .key }}
      containerPort: {{ .port }}
  {{- end }}
  {{- with $values.resources | default $controller.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  volumeMounts:
    - name: csi
      mountPath: /csi
    - name: kubernetes
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- with $values.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* Proxy variables, as a list. */ -}}
{{- define "ebs.proxy" -}}
{{- $all := list -}}
{{- with .Values.proxy.http_proxy -}}
  {{- $all = append $all (dict "name" "HTTP_PROXY" "value" .) -}}
  {{- $all = append $all (dict "name" "HTTPS_PROXY" "value" .) -}}
{{- end -}}
{{- with .Values.proxy.no_proxy -}}
  {{- $all = append $all (dict "name" "NO_PROXY" "value" .) -}}
{{- end -}}
{{- with $all }}{{ toYaml . }}{{ end -}}
{{- end -}}
