{{- /* A key that is no value of the chart ends the rendering and names the nearest value. The schema
       cannot name it, so the schema allows other keys. keys.json holds the names of the schema. */ -}}

{{- define "ebs.refuseUnknownKeys" -}}
{{- $known := .Files.Get "keys.json" | fromJson -}}
{{- include "ebs.refuseKeysBeside" (list .Values $known "" $known .) -}}
{{- range $name, $own := .Values.additionalDaemonSets -}}
  {{- if kindIs "map" $own -}}
    {{- include "ebs.refuseKeysBeside" (list $own $known.node (printf "additionalDaemonSets.%s" $name) $known.node $) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Keys of the Go driver's chart before 2.0, and what says the same here; the nearest value is
       that of the others. */ -}}
{{- define "ebs.formerKeys" -}}
controller.containerResources: controller.resources and sidecars.NAME.resources
controller.extraVars: controller.env
enableVolumeResizing: nothing, volumes can always be expanded; remove it
enableVolumeScheduling: nothing, the driver always knows the nodes' zones; remove it
enableVolumeSnapshot: sidecars.snapshotter.forceEnable, without which the sidecar comes with the cluster's VolumeSnapshot definitions
resources: controller.resources and node.resources
serviceAccount: controller.serviceAccount and node.serviceAccount
sidecars.attacherImage: sidecars.attacher.image
sidecars.livenessProbeImage: nothing, there is no such sidecar; remove it
sidecars.nodeDriverRegistrarImage: nothing, there is no such sidecar; remove it
sidecars.provisionerImage: sidecars.provisioner.image
sidecars.resizerImage: sidecars.resizer.image
sidecars.snapshotterImage: sidecars.snapshotter.image
snapshotController: nothing, the snapshot-controller is installed by itself; remove it
tolerations: controller.tolerations and node.tolerations
nodeSelector: controller.nodeSelector and node.nodeSelector
podAnnotations: controller.podAnnotations and node.podAnnotations
{{- end -}}

{{- /* A list of values, the keys known beside them, their path, the keys to suggest, and the root. An
       entry without keys of its own takes any content. */ -}}
{{- define "ebs.refuseKeysBeside" -}}
{{- $known := index . 1 -}}
{{- $path := index . 2 -}}
{{- $all := index . 3 -}}
{{- $root := index . 4 -}}
{{- range $key, $value := index . 0 -}}
  {{- $here := trimPrefix "." (printf "%s.%s" $path $key) -}}
  {{- if not (hasKey $known $key) -}}
    {{- if has $here (list "USER-SUPPLIED VALUES" "COMPUTED VALUES") -}}
      {{- fail (printf "%s is the heading that helm get values prints, no value. Write the file anew with helm get values %s --namespace %s -o yaml" $here $root.Release.Name $root.Release.Namespace) -}}
    {{- end -}}
    {{- with get (include "ebs.formerKeys" . | fromYaml) $here -}}
      {{- fail (printf "%s is a key of the Go driver's chart before 2.0; now it is %s" $here .) -}}
    {{- end -}}
    {{- $base := regexFind "^additionalDaemonSets\\.[^.]+" $path -}}
    {{- $nearest := include "ebs.nearestKey" (list $all (trimPrefix $base $here | trimPrefix ".")) -}}
    {{- $hint := $nearest | empty | ternary "" (printf "; the nearest is %s" (trimPrefix "." (printf "%s.%s" $base $nearest))) -}}
    {{- fail (printf "%s is not a value of this chart%s. deploy/docs/configuration.md lists all values" $here $hint) -}}
  {{- end -}}
  {{- if and (kindIs "map" $value) (get $known $key) -}}
    {{- include "ebs.refuseKeysBeside" (list $value (get $known $key) $here $all $root) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The path, of a list of known keys and a path, whose last name has most pairs of letters in
       common with that of the given path. A key beside the given one comes before others. Empty
       where no name has two fifths of its pairs in common. */ -}}
{{- define "ebs.nearestKey" -}}
{{- $given := splitList "." (index . 1) -}}
{{- $beside := initial $given | join "." -}}
{{- $pairs := include "ebs.pairs" (last $given) | trim | splitList " " -}}
{{- $best := 400 -}}
{{- $nearest := "" -}}
{{- range include "ebs.keyPaths" (list (index . 0) "") | trim | splitList " " -}}
  {{- $names := splitList "." . -}}
  {{- $theirs := include "ebs.pairs" (last $names) | trim | splitList " " -}}
  {{- $common := 0 -}}
  {{- range $theirs -}}{{- if has . $pairs -}}{{- $common = add1 $common -}}{{- end -}}{{- end -}}
  {{- $score := div (mul 2000 $common) (add (len $pairs) (len $theirs)) -}}
  {{- if and (eq (initial $names | join ".") $beside) (gt (int $score) 400) -}}{{- $score = add $score 500 -}}{{- end -}}
  {{- if gt (int $score) (int $best) -}}
    {{- $best = $score -}}
    {{- $nearest = . -}}
  {{- end -}}
{{- end -}}
{{- $nearest -}}
{{- end -}}

{{- /* All paths of a list of known keys and the path before them. */ -}}
{{- define "ebs.keyPaths" -}}
{{- $path := index . 1 -}}
{{- range $key, $inner := index . 0 }} {{ $path }}{{ $key }}
{{- with $inner }}{{ include "ebs.keyPaths" (list . (printf "%s%s." $path $key)) }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* The pairs of neighbouring letters of a word. */ -}}
{{- define "ebs.pairs" -}}
{{- $before := "" -}}
{{- range lower . | splitList "" }}{{- if $before }}{{ $before }}{{ . }} {{ end }}{{- $before = . -}}{{- end -}}
{{- end -}}
