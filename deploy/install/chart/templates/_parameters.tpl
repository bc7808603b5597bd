{{- /* Keys of classes, written by UPDATE_GENERATED=1 cargo test --workspace --test operator_pages. */ -}}

{{- /* Of a StorageClass, in lower case. */ -}}
{{- define "ebs.parameters" -}}
type
iops
iopspergb
allowautoiopspergbincrease
allowautoiopsincreaseonmodify
throughput
encrypted
kmskeyid
volumeinitializationrate
blockattachuntilinitialized
blocksize
inodesize
bytesperinode
numberofinodes
ext4bigalloc
ext4clustersize
ext4encryptionsupport
ext4stride
ext4stripewidth
fstype
blockexpress
{{- end -}}

{{- /* Of a VolumeAttributesClass, as they are written. */ -}}
{{- define "ebs.attributes" -}}
type
volumeType
iops
throughput
iopspergb
allowautoiopsincreaseonmodify
{{- end -}}

{{- /* Of a VolumeSnapshotClass, in lower case. */ -}}
{{- define "ebs.snapshotParameters" -}}
fastsnapshotrestoreavailabilityzones
outpostarn
lockmode
lockduration
lockexpirationdate
lockcooloffperiod
{{- end -}}

{{- /* Of all, whose values are whole numbers. */ -}}
{{- define "ebs.numbers" -}}
iops
iopspergb
throughput
volumeinitializationrate
lockduration
lockcooloffperiod
{{- end -}}

{{- /* Of all, whose values are true or false. */ -}}
{{- define "ebs.switches" -}}
allowautoiopspergbincrease
allowautoiopsincreaseonmodify
encrypted
blockattachuntilinitialized
ext4bigalloc
ext4encryptionsupport
{{- end -}}
