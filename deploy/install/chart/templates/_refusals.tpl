{{- /* What cannot be installed as it is asked for ends the rendering, with the next step. */ -}}

{{- define "ebs.refuse" -}}
{{- $values := .Values -}}
{{- include "ebs.refuseNotThere" . -}}
{{- include "ebs.refuseUnknownKeys" . -}}
{{- include "ebs.refuseForeignDefaults" . -}}
{{- if and (eq (base $values.image.repository) "aws-ebs-csi-driver") (not $values.image.mirrorOfThisDriver) -}}
  {{- fail (printf "image.repository %q is the Go driver's image by its name: this chart's arguments are not that program's. Give the prefix of this driver's four images, or set image.mirrorOfThisDriver: true where they stand under this name" $values.image.repository) -}}
{{- end -}}
{{- include "ebs.refuseImages" . -}}
{{- include "ebs.refuseArchitectures" . -}}
{{- if and $values.fips (not $values.fipsEndpointsOnly) (not (hasSuffix "-fips" (toString $values.image.tag))) -}}
  {{- fail "fips: image.tag does not end in -fips, as the tag of images with a FIPS module does (deploy/install/images/build --fips). Use such images, or set fipsEndpointsOnly: true, too, if AWS's FIPS endpoints are all that is wanted" -}}
{{- end -}}
{{- if ne $values.health "agent" -}}
  {{- fail (printf "health: %q is not offered: the processes answer /healthz and /readyz themselves. Leave it at agent" $values.health) -}}
{{- end -}}
{{- if and $values.prometheusRule.enabled (not $values.nodeComponentOnly) (not (and $values.controller.enableMetrics $values.node.enableMetrics)) -}}
  {{- fail "prometheusRule.enabled: without metrics EBSFailoverNobodyLeads fires for ever, and alerts of nodes never. Set controller.enableMetrics: true and node.enableMetrics: true, too" -}}
{{- end -}}
{{- include "ebs.refuseSafeDetach" . -}}
{{- include "ebs.refuseController" . -}}
{{- range $key, $sidecar := $values.sidecars -}}
  {{- include "ebs.refusePrivileged" (list (printf "sidecars.%s.securityContext" $key) ($sidecar | default dict).securityContext) -}}
  {{- include "ebs.refuseAwsVariables" (list (printf "sidecars.%s.env" $key) ($sidecar | default dict).env) -}}
  {{- include "ebs.refuseQuantities" (list (printf "sidecars.%s.resources" $key) ($sidecar | default dict).resources) -}}
{{- end -}}
{{- include "ebs.refuseGroupSnapshots" . -}}
{{- range $part := list "apiServer" "aws" -}}
  {{- range (get $values.networkPolicy $part | default dict).cidrs -}}
    {{- if not (regexMatch "^([0-9]{1,3}([.][0-9]{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)/[0-9]{1,3}$" .) -}}
      {{- fail (printf "networkPolicy.%s.cidrs: %q is not an address with a mask; for one address write %s/%s" $part . . (contains ":" . | ternary "128" "32")) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- include "ebs.refuseNode" (dict "root" . "node" $values.node "path" "node") -}}
{{- range $name, $own := $values.additionalDaemonSets -}}
  {{- if or (eq $name "windows") (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
    {{- fail (printf "additionalDaemonSets.%s: the name becomes part of ebs-csi-node-%s; give lower-case letters, digits and hyphens, and not windows" $name $name) -}}
  {{- end -}}
  {{- $node := get (include "ebs.nodes" $ | fromYaml) (printf "ebs-csi-node-%s" $name) -}}
  {{- include "ebs.refuseNode" (dict "root" $ "node" $node "path" (printf "additionalDaemonSets.%s" $name)) -}}
{{- end -}}
{{- include "ebs.refuseQuantities" (list "helmTester.resources" $values.helmTester.resources) -}}
{{- include "ebs.refuseQuantities" (list "preflight.resources" $values.preflight.resources) -}}
{{- include "ebs.refuseClasses" . -}}
{{- end -}}

{{- /* helm upgrade --reuse-values puts the values of the release before it in the place of this chart's
       defaults: what another chart does not have is missing then. */ -}}
{{- define "ebs.refuseForeignDefaults" -}}
{{- $node := .Values.node | default dict -}}
{{- $all := dict "node.agent" (get $node "agent") "node.helper" (get $node "helper") -}}
{{- $_ := set $all "controller.nodeLifecycle" (get (.Values.controller | default dict) "nodeLifecycle") -}}
{{- range list "images" "preflight" "admissionPolicies" "groupSnapshots" "prometheusRule" "dashboards" "networkPolicy" "onboarding" "safeDetach" -}}
  {{- $_ := set $all . (get $.Values .) -}}
{{- end -}}
{{- range $path, $value := $all -}}
  {{- if not (kindIs "map" $value) -}}
    {{- fail (printf "%s is missing: these are the values of another chart, as helm upgrade --reuse-values takes them, without this chart's defaults. Upgrade with --reset-then-reuse-values, or with --values and what helm get values -o yaml wrote" $path) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* An image that has no registry is looked for at Docker Hub, where it is not. */ -}}
{{- define "ebs.refuseImages" -}}
{{- if not (or .Values.image.containerRegistry (eq (.Values.image.pullPolicy | default "") "Never")) -}}
  {{- $images := list (include "ebs.image" (list . "nodeAgent")) (include "ebs.image" (list . "mountHelper")) -}}
  {{- if not .Values.nodeComponentOnly -}}
    {{- $images = concat (list (include "ebs.image" (list . "controller")) (include "ebs.image" (list . "nodeLifecycle"))) $images -}}
    {{- range include "ebs.sidecars" . | splitList "," -}}
      {{- $image := (get $.Values.sidecars (trimPrefix "csi-" .)).image -}}
      {{- $images = append $images (printf "%s%s" $image.repository (include "ebs.version" $image)) -}}
    {{- end -}}
  {{- end -}}
  {{- range $image := $images -}}
    {{- if not (include "ebs.registryOf" $image) -}}
      {{- fail (printf "image.containerRegistry is empty, and nobody serves %s: there are no published images. Build the four with ./deploy/install/images/build, push them with ./deploy/install/images/push REGISTRY, and set image.containerRegistry=REGISTRY. Where the nodes have the images, set image.pullPolicy=Never" $image) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* A DaemonSet deletes its pods at once on nodes that it does not select, whatever its update
       strategy: an upgrade would take the former driver from nodes of another architecture. */ -}}
{{- define "ebs.refuseArchitectures" -}}
{{- $architectures := .Values.images.architectures -}}
{{- $others := dict -}}
{{- if $architectures -}}
  {{- $nodes := include "ebs.nodes" . | fromYaml -}}
  {{- range (lookup "v1" "Node" "" "").items -}}
    {{- $labels := .metadata.labels | default dict -}}
    {{- $architecture := get $labels "kubernetes.io/arch" -}}
    {{- if and $architecture (eq (get $labels "kubernetes.io/os") "linux") (not (has $architecture $architectures)) -}}
      {{- $name := .metadata.name -}}
      {{- range $nodes -}}
        {{- if and .enableLinux (include "ebs.selects" (list . $labels)) -}}
          {{- $_ := set $others $architecture (append (get $others $architecture | default list) $name | uniq) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $architecture, $names := $others -}}
  {{- fail (printf "images.architectures is [%s], and the cluster has %s nodes (%d: %s), which would get no pod of this driver and lose a former driver's at once, whatever the update strategy. Build for both with ./deploy/install/images/build --platform linux/amd64,linux/arm64, and give Helm that build's digests.yaml; or leave these nodes out: node.nodeSelector.kubernetes\\.io/arch=%s" (join "," $architectures) $architecture (len $names) (join "," (slice $names 0 (min 3 (len $names)))) (first $architectures)) -}}
{{- end -}}
{{- end -}}

{{- /* Whether a DaemonSet's node selector and required affinity select a node: a list of its values and
       the node's labels. Operators that compare numbers, and fields, count as met. */ -}}
{{- define "ebs.selects" -}}
{{- $labels := index . 1 -}}
{{- $selects := true -}}
{{- range $key, $value := (index . 0).nodeSelector -}}
  {{- if ne (get $labels $key) (toString $value) -}}{{- $selects = false -}}{{- end -}}
{{- end -}}
{{- $node := get ((index . 0).affinity | default dict) "nodeAffinity" | default dict -}}
{{- $terms := get (get $node "requiredDuringSchedulingIgnoredDuringExecution" | default dict) "nodeSelectorTerms" | default list -}}
{{- $met := empty $terms -}}
{{- range $terms -}}
  {{- $all := true -}}
  {{- range .matchExpressions -}}
    {{- $has := hasKey $labels .key -}}
    {{- $in := and $has (has (get $labels .key) (.values | default list)) -}}
    {{- if or (and (eq .operator "In") (not $in)) (and (eq .operator "NotIn") $in) -}}{{- $all = false -}}{{- end -}}
    {{- if or (and (eq .operator "Exists") (not $has)) (and (eq .operator "DoesNotExist") $has) -}}{{- $all = false -}}{{- end -}}
  {{- end -}}
  {{- if $all -}}{{- $met = true -}}{{- end -}}
{{- end -}}
{{- if and $selects $met -}}yes{{- end -}}
{{- end -}}

{{- define "ebs.refuseSafeDetach" -}}
{{- $safe := .Values.safeDetach -}}
{{- $mode := include "ebs.word" $safe.mode -}}
{{- $failover := include "ebs.word" $safe.failover -}}
{{- $fence := include "ebs.word" $safe.fence -}}
{{- if and (ne $mode "off") (not $safe.gate) -}}
  {{- fail (printf "safeDetach.mode %s needs safeDetach.gate: true (alpha)" $mode) -}}
{{- end -}}
{{- if and (ne $failover "off") (eq $mode "off") -}}
  {{- fail (printf "safeDetach.failover %s needs safeDetach.mode ec2-only or enforce: without it nothing is proved" $failover) -}}
{{- end -}}
{{- if and (eq $failover "kep") (ne $mode "enforce") -}}
  {{- fail "safeDetach.failover kep needs safeDetach.mode enforce: otherwise a node that runs and is cut off loses its volumes while it writes to them" -}}
{{- end -}}
{{- if and (ne $fence "off") (eq $failover "off") -}}
  {{- fail (printf "safeDetach.fence %s needs safeDetach.failover: nobody would ask for a fence" $fence) -}}
{{- end -}}
{{- end -}}

{{- /* The sidecar looks for the definitions when it starts, and goes on without groups. Where nothing is
       looked up, as by `helm template`, there is no namespace either. */ -}}
{{- define "ebs.refuseGroupSnapshots" -}}
{{- $served := .Capabilities.APIVersions.Has "groupsnapshot.storage.k8s.io/v1" -}}
{{- if and .Values.groupSnapshots.enabled (not .Values.nodeComponentOnly) (not $served) (lookup "v1" "Namespace" "" "kube-system") -}}
  {{- fail "groupSnapshots.enabled: the cluster does not serve groupsnapshot.storage.k8s.io/v1, so every VolumeGroupSnapshot would wait for ever. Install the definitions of external-snapshotter 8.6 or newer (client/config/crd) first, or leave groupSnapshots.enabled out" -}}
{{- end -}}
{{- end -}}

{{- /* A key that another chart may have, or a later version of this one. */ -}}
{{- define "ebs.refuseNotThere" -}}
{{- if .Values.podSecurityLabels -}}
  {{- fail "podSecurityLabels: the chart makes no namespace; label the namespace yourself, with the commands that helm install prints" -}}
{{- end -}}
{{- end -}}

{{- define "ebs.refuseController" -}}
{{- $controller := .Values.controller -}}
{{- include "ebs.refuseTags" . -}}
{{- if and $controller.volumeModificationFeature.enabled (not .Values.sidecars.resizer.leaderElection.enabled) -}}
  {{- fail "controller.volumeModificationFeature.enabled: the sidecar follows the resizer's lease and ends where there is none. Set sidecars.resizer.leaderElection.enabled: true" -}}
{{- end -}}
{{- include "ebs.refuseStrategy" (list "controller.updateStrategy" $controller.updateStrategy "Recreate") -}}
{{- include "ebs.refuseQuantities" (list "controller.resources" $controller.resources) -}}
{{- include "ebs.refuseQuantities" (list "controller.nodeLifecycle.resources" $controller.nodeLifecycle.resources) -}}
{{- include "ebs.refuseUnnamed" (list "controller.serviceAccount.name" $controller.serviceAccount.name) -}}
{{- range $key := list "securityContext" "containerSecurityContext" -}}
  {{- $context := get $controller $key | default dict -}}
  {{- if and (hasKey $context "runAsUser") (eq (toString $context.runAsUser) "0") -}}
    {{- fail (printf "controller.%s.runAsUser 0: the controller does not start as root. Give any other user, or leave it out" $key) -}}
  {{- end -}}
  {{- include "ebs.refusePrivileged" (list (printf "controller.%s" $key) $context) -}}
{{- end -}}
{{- end -}}

{{- /* A list of a path, a strategy of updates, and its type beside RollingUpdate. */ -}}
{{- define "ebs.refuseStrategy" -}}
{{- $type := (index . 1 | default dict).type | default "RollingUpdate" -}}
{{- if not (has $type (list "RollingUpdate" (index . 2))) -}}
  {{- fail (printf "%s.type: %v is none here. Give RollingUpdate or %s" (index . 0) $type (index . 2)) -}}
{{- end -}}
{{- end -}}

{{- /* A list of a path and a container's resources. */ -}}
{{- define "ebs.refuseQuantities" -}}
{{- $path := index . 0 -}}
{{- range $part := list "requests" "limits" -}}
  {{- range $name, $quantity := get (index $ 1 | default dict) $part | default dict -}}
    {{- if and (kindIs "string" $quantity) (not (regexMatch "^([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$" $quantity)) -}}
      {{- fail (printf "%s.%s.%s: %q is not a quantity of Kubernetes; write one like 256Mi or 100m" $path $part $name $quantity) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* A list of a path and the name of an account. */ -}}
{{- define "ebs.refuseUnnamed" -}}
{{- if not (index . 1) -}}
  {{- fail (printf "%s is empty: the pods would run as the namespace's default account, whose rights others set. Give a name" (index . 0)) -}}
{{- end -}}
{{- end -}}

{{- /* The controller takes the tags as one list, in which a comma ends a tag. */ -}}
{{- define "ebs.refuseTags" -}}
{{- range $key, $value := .Values.controller.extraVolumeTags -}}
  {{- include "ebs.refuseReservedTag" (list $ (printf "controller.extraVolumeTags %s" $key) $key) -}}
  {{- if or (contains "," (toString $value)) (regexMatch "[,=]" $key) -}}
    {{- fail (printf "controller.extraVolumeTags %s: a tag here has no comma, and its key no equals sign; --extra-tags has no way to say them. Change the tag, or give it to each class as a tagSpecification" $key) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* A list of a path and a security context. */ -}}
{{- define "ebs.refusePrivileged" -}}
{{- $context := index . 1 | default dict -}}
{{- if or $context.privileged $context.allowPrivilegeEscalation -}}
  {{- fail (printf "%s: privileged and allowPrivilegeEscalation are the mount-helper's alone. Leave them out" (index . 0)) -}}
{{- end -}}
{{- end -}}

{{- /* Variables by which an AWS SDK finds credentials: a list of a path and the variables. Those of
       instance metadata and the region are none. */ -}}
{{- define "ebs.refuseAwsVariables" -}}
{{- $path := index . 0 -}}
{{- range index . 1 -}}
  {{- if and (hasPrefix "AWS_" .name) (not (regexMatch "^AWS_(EC2_METADATA_.*|REGION|DEFAULT_REGION)$" .name)) -}}
    {{- fail (printf "%s %s: AWS settings and credentials are the controller's alone. Set it in controller.env" $path .name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* A dict of root, node (the values) and path. */ -}}
{{- define "ebs.refuseNode" -}}
{{- $node := .node -}}
{{- $path := .path -}}
{{- if $node.windowsHostProcess -}}
  {{- fail (printf "%s.windowsHostProcess: Windows nodes are not supported. Keep the Go driver's node part there" $path) -}}
{{- end -}}
{{- if ne $node.registration "agent" -}}
  {{- fail (printf "%s.registration: %q is not offered: the agent registers itself with kubelet. Leave it at agent" $path $node.registration) -}}
{{- end -}}
{{- if not (or (kindIs "invalid" $node.reservedVolumeAttachments) (kindIs "invalid" $node.volumeAttachLimit)) -}}
  {{- fail (printf "%s.reservedVolumeAttachments and %s.volumeAttachLimit exclude each other: the limit is taken as it is. Give one" $path $path) -}}
{{- end -}}
{{- if and (not (kindIs "invalid" $node.volumeAttachLimit)) (eq (int $node.volumeAttachLimit) 0) -}}
  {{- fail (printf "%s.volumeAttachLimit 0 is no limit to Kubernetes: it would send more pods to a node than EC2 attaches volumes. Give the number, or leave it out and the driver counts" $path) -}}
{{- end -}}
{{- include "ebs.refuseStrategy" (list (printf "%s.updateStrategy" $path) $node.updateStrategy "OnDelete") -}}
{{- include "ebs.refuseQuantities" (list (printf "%s.resources" $path) $node.resources) -}}
{{- include "ebs.refuseQuantities" (list (printf "%s.helper.resources" $path) $node.helper.resources) -}}
{{- include "ebs.refuseUnnamed" (list (printf "%s.serviceAccount.name" $path) ($node.serviceAccount | default dict).name) -}}
{{- range $node.envFrom -}}
  {{- if .secretRef -}}
    {{- fail (printf "%s.envFrom: no Secret goes to a node. What the controller needs stands in controller.envFrom" $path) -}}
  {{- end -}}
{{- end -}}
{{- range $node.env -}}
  {{- if (.valueFrom | default dict).secretKeyRef -}}
    {{- fail (printf "%s.env %s: no Secret goes to a node. What the controller needs stands in controller.env" $path .name) -}}
  {{- end -}}
{{- end -}}
{{- include "ebs.refuseAwsVariables" (list (printf "%s.env" $path) $node.env) -}}
{{- $account := $node.serviceAccount | default dict -}}
{{- $release := .root.Release.Namespace -}}
{{- $namespace := $node.namespaceOverride | default $release -}}
{{- if and (eq $namespace $release) (eq $account.name .root.Values.controller.serviceAccount.name) -}}
  {{- fail (printf "%s.serviceAccount.name %s is also the controller's: what gives the controller its AWS role (IRSA, Pod Identity) would give it to every node. Give the nodes an account of their own; it needs no right" $path $account.name) -}}
{{- end -}}
{{- if not $account.foreign -}}
  {{- $annotations := $account.annotations | default dict -}}
  {{- if not $account.create -}}
    {{- $found := lookup "v1" "ServiceAccount" $namespace $account.name | default dict -}}
    {{- $annotations = get (get $found "metadata" | default dict) "annotations" | default dict -}}
  {{- end -}}
  {{- range $key, $_ := $annotations -}}
    {{- if hasSuffix "/role-arn" $key -}}
      {{- fail (printf "%s.serviceAccount.annotations %s: no AWS role belongs on a node; this driver's nodes use none. Remove it, or set %s.serviceAccount.foreign: true while the Go driver's pods still use the account" $path $key $path) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $key, $_ := $node.podAnnotations -}}
  {{- if hasPrefix "ebs.csi.aws.com/" $key -}}
    {{- fail (printf "%s.podAnnotations %s: annotations of that prefix tell the agent about its node and are not set by hand. Remove it" $path $key) -}}
  {{- end -}}
{{- end -}}
{{- $roots := dict "securityContext" $node.securityContext "containerSecurityContext" $node.containerSecurityContext -}}
{{- $_ := set $roots "helper.securityContext" $node.helper.securityContext -}}
{{- $_ := set $roots "agent.securityContext" $node.agent.securityContext -}}
{{- range $key, $context := $roots -}}
  {{- $context = $context | default dict -}}
  {{- if or $context.runAsNonRoot (and (hasKey $context "runAsUser") (ne (toString $context.runAsUser) "0")) -}}
    {{- fail (printf "%s.%s: both processes start as root and take their own users by themselves. Leave runAsUser and runAsNonRoot out" $path $key) -}}
  {{- end -}}
  {{- if and (hasKey $context "privileged") (not $context.privileged) (ne $key "agent.securityContext") -}}
    {{- fail (printf "%s.%s.privileged: Kubernetes takes Bidirectional mounts from a privileged container only. Leave it out" $path $key) -}}
  {{- end -}}
{{- end -}}
{{- include "ebs.refusePrivileged" (list (printf "%s.agent.securityContext" $path) $node.agent.securityContext) -}}
{{- $taken := list (trimSuffix "/" $node.kubeletPath) "/dev" "/run/ebs-csi" -}}
{{- $mounts := concat ($node.volumeMounts | default list) ($node.helper.volumeMounts | default list) -}}
{{- range $mount := $mounts -}}
  {{- $at := trimSuffix "/" $mount.mountPath -}}
  {{- range $taken -}}
    {{- if or (eq $at "") (eq $at .) (hasPrefix (printf "%s/" .) $at) (hasPrefix (printf "%s/" $at) .) -}}
      {{- fail (printf "%s: a mount at %s would lie over %s, where volumes, disks and the helper's socket are. Mount it elsewhere" $path $mount.mountPath .) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := include "ebs.preStopTimeout" (dict "node" $node) -}}
{{- end -}}
