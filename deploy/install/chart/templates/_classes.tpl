{{- /* What the controller would refuse of a class, for each claim anew. */ -}}

{{- define "ebs.volumeTypes" -}}
gp2 gp3 io1 io2 st1 sc1 standard sbg1 sbp1
{{- end -}}

{{- define "ebs.fileSystems" -}}
ext3 ext4 xfs
{{- end -}}

{{- define "ebs.refuseClasses" -}}
{{- $own := "ebs.csi.aws.com" -}}
{{- range .Values.storageClasses -}}
  {{- if eq (.provisioner | default $own) $own -}}
    {{- include "ebs.refuseParameters" (dict "root" $ "list" "storageClasses" "class" . "known" "ebs.parameters" "asWritten" false) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.volumeAttributesClasses (not .Values.nodeComponentOnly) (hasSuffix "/v1beta1" (include "ebs.attributesClassVersion" .)) -}}
  {{- fail (printf "volumeAttributesClasses: Kubernetes %s serves the class as v1beta1, which csi-provisioner 6 and csi-resizer 2 do not read: they make volumes without what the class says, and never change one. Upgrade to Kubernetes 1.34, or leave the classes out; StorageClass parameters say the same for new volumes" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- range .Values.volumeAttributesClasses -}}
  {{- if eq (.driverName | default $own) $own -}}
    {{- include "ebs.refuseParameters" (dict "root" $ "list" "volumeAttributesClasses" "class" . "known" "ebs.attributes" "asWritten" true) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.volumeSnapshotClasses -}}
  {{- if eq (.driver | default $own) $own -}}
    {{- include "ebs.refuseParameters" (dict "root" $ "list" "volumeSnapshotClasses" "class" . "known" "ebs.snapshotParameters" "asWritten" false) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "ebs.words" -}}
{{- include (index . 0) (index . 1) | replace "\n" " " -}}
{{- end -}}

{{- /* A dict of root, list (the value's name), class, known (the template with its keys) and asWritten
       (letter case counts). */ -}}
{{- define "ebs.refuseParameters" -}}
{{- $words := dict -}}
{{- range $name := list .known "ebs.numbers" "ebs.switches" "ebs.volumeTypes" "ebs.fileSystems" -}}
  {{- $_ := set $words $name (include "ebs.words" (list $name $) | splitList " ") -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $key, $value := .class.parameters -}}
  {{- $name := $.asWritten | ternary $key (lower $key) -}}
  {{- $at := printf "%s: %s parameters.%s" $.list $.class.name $key -}}
  {{- if not (kindIs "string" $value) -}}
    {{- fail (printf "%s: Kubernetes takes text alone; write %q" $at (toString $value)) -}}
  {{- end -}}
  {{- if eq $name "csi.storage.k8s.io/fstype" -}}
    {{- include "ebs.refuseWord" (list $at $value (get $words "ebs.fileSystems")) -}}
  {{- else if hasPrefix "csi.storage.k8s.io/" $name -}}
  {{- else if hasPrefix "tagSpecification" $key -}}
    {{- if not (contains "=" $value) -}}
      {{- fail (printf "%s: %q is not a tag; write it as key=value" $at $value) -}}
    {{- end -}}
    {{- include "ebs.refuseReservedTag" (list $.root $at (splitList "=" $value | first)) -}}
  {{- else if and $.asWritten (hasPrefix "tagDeletion" $key) -}}
  {{- else if not (has $name (get $words $.known)) -}}
    {{- fail (printf "%s: %s has the parameter %q, which this driver does not know; every claim of it would fail. Known are: %s, tagSpecification_N" $.list $.class.name $key (join ", " (get $words $.known))) -}}
  {{- else if has (lower $name) (list "type" "volumetype") -}}
    {{- include "ebs.refuseWord" (list $at $value (get $words "ebs.volumeTypes")) -}}
  {{- else if has $name (get $words "ebs.switches") -}}
    {{- include "ebs.refuseWord" (list $at $value (list "true" "false")) -}}
  {{- else if and $value (has $name (get $words "ebs.numbers")) (not (regexMatch "^[0-9]+$" $value)) -}}
    {{- fail (printf "%s: %q is not a whole number" $at $value) -}}
  {{- end -}}
  {{- if hasKey $seen $name -}}
    {{- fail (printf "%s is given twice, in different spellings; keep one" $at) -}}
  {{- end -}}
  {{- $_ := set $seen $name true -}}
{{- end -}}
{{- if and (hasKey $seen "iops") (hasKey $seen "iopspergb") -}}
  {{- fail (printf "%s: %s has the parameters iops and iopsPerGB, which exclude each other. Keep one" .list .class.name) -}}
{{- end -}}
{{- end -}}

{{- /* A list of a path, a value and the words that it may be; empty is as if it were not given. */ -}}
{{- define "ebs.refuseWord" -}}
{{- if and (index . 1) (not (has (index . 1) (index . 2))) -}}
  {{- fail (printf "%s: %q is none of %s" (index . 0) (index . 1) (join ", " (index . 2))) -}}
{{- end -}}
{{- end -}}

{{- /* A list of the root, a path and the key of a tag. */ -}}
{{- define "ebs.refuseReservedTag" -}}
{{- $leftOut := false -}}
{{- range (index . 0).Values.controller.additionalArgs -}}
  {{- if regexMatch "^--?warn-on-invalid-tag(=true|=1)?$" . -}}{{- $leftOut = true -}}{{- end -}}
{{- end -}}
{{- if and (not $leftOut) (regexMatch "^(CSIVolumeName$|CSIVolumeSnapshotName$|kubernetes[.]io|ebs[.]csi[.]aws[.]com/)" (index . 2)) -}}
  {{- fail (printf "%s: the tag %q is the driver's own. Use another key" (index . 1) (index . 2)) -}}
{{- end -}}
{{- end -}}
