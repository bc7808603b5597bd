{{- /* The DaemonSets of nodes. */ -}}

{{- /* Their values by their names, as YAML. */ -}}
{{- define "ebs.nodes" -}}
{{- $all := dict "ebs-csi-node" .Values.node -}}
{{- range $name, $own := .Values.additionalDaemonSets -}}
  {{- $_ := set $all (printf "ebs-csi-node-%s" $name) (include "ebs.over" (list $.Values.node ($own | default dict)) | fromYaml) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{- /* Seconds of the preStop hook: what is asked for, or what the two ends leave of the pod's
       grace period. */ -}}
{{- define "ebs.preStopTimeout" -}}
{{- $node := .node -}}
{{- /* Between the three, for signals and ends to arrive. */ -}}
{{- $between := 2 -}}
{{- $ends := add (int $node.agent.gracePeriod) (int $node.helper.grace) $between -}}
{{- $all := int $node.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $node.agent.preStopTimeout -}}
  {{- if lt (sub $all $ends) 1 -}}
    {{- fail (printf "node.terminationGracePeriodSeconds %d is too short: the agent's gracePeriod %d, the helper's grace %d and %d s between them leave nothing for the preStop hook; give at least %d" $all (int $node.agent.gracePeriod) (int $node.helper.grace) $between (add1 $ends)) -}}
  {{- end -}}
  {{- sub $all $ends -}}
{{- else -}}
  {{- $needed := add $ends (int $node.agent.preStopTimeout) -}}
  {{- if lt $all (int $needed) -}}
    {{- fail (printf "node.terminationGracePeriodSeconds %d is too short for node.agent.preStopTimeout %d, the agent's gracePeriod %d, the helper's grace %d and %d s between them; give at least %d" $all (int $node.agent.preStopTimeout) (int $node.agent.gracePeriod) (int $node.helper.grace) $between $needed) -}}
  {{- end -}}
  {{- int $node.agent.preStopTimeout -}}
{{- end -}}
{{- end -}}

{{- /* Whether node-lifecycle keeps annotations of the nodes' pods: a list of the root and the value of
       onboarding. Without the admission policy its right to patch pods would extend to every field
       of every pod of the namespace, so there is no such right then. */ -}}
{{- define "ebs.annotates" -}}
{{- $values := (index . 0).Values -}}
{{- if and $values.onboarding.enabled (index . 1) (include "ebs.hasPolicies" (index . 0)) (not $values.nodeComponentOnly) -}}yes{{- end -}}
{{- end -}}

{{- define "ebs.annotatesFacts" -}}
{{- include "ebs.annotates" (list . (.Values.onboarding.nodeFacts | default dict).labels) -}}
{{- end -}}

{{- define "ebs.annotatesDrains" -}}
{{- include "ebs.annotates" (list . .Values.onboarding.drain) -}}
{{- end -}}

{{- /* In enforce a node promises not to use a volume before its detach: the request is an annotation. */ -}}
{{- define "ebs.annotatesPromises" -}}
{{- if and (eq (include "ebs.word" .Values.safeDetach.mode) "enforce") (include "ebs.hasPolicies" .) (not .Values.nodeComponentOnly) -}}yes{{- end -}}
{{- end -}}

{{- define "ebs.hasPolicies" -}}
{{- if and .Values.admissionPolicies.enabled (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}yes{{- end -}}
{{- end -}}

{{- /* The namespaces of the DaemonSets, as a list. */ -}}
{{- define "ebs.nodeNamespaces" -}}
{{- $all := list -}}
{{- range $_, $node := include "ebs.nodes" . | fromYaml -}}
  {{- $all = append $all ($node.namespaceOverride | default $.Release.Namespace) -}}
{{- end -}}
{{- $all | uniq | sortAlpha | toYaml -}}
{{- end -}}

{{- /* The agent serves without facts, too, but asks instance metadata before it serves. Below
       Kubernetes 1.35 no pod has its node's labels: where nobody writes annotations either, waiting
       would only delay instance metadata. */ -}}
{{- define "ebs.factsTimeout" -}}
{{- $node := .node -}}
{{- $copied := semverCompare ">=1.35.0-0" .root.Capabilities.KubeVersion.Version -}}
{{- $written := or (include "ebs.annotatesFacts" .root) .root.Values.nodeComponentOnly -}}
{{- if not (kindIs "invalid" $node.agent.factsTimeout) -}}
  {{- int $node.agent.factsTimeout -}}
{{- else if or $copied $written -}}
  10
{{- else -}}
  2
{{- end -}}
{{- end -}}

{{- /* Flags that are the helper's where they stand among the agent's. */ -}}
{{- define "ebs.helperFlags" -}}
kubelet-root paths untrusted-images nodev-nosuid disks-without-serial tool-deadline copied-mounts grace log-format allow-missing-landlock allow-private-mounts guest-disks sandbox vsock-key-file vsock-peers
{{- end -}}

{{- /* node.additionalArgs, of the helper or of the agent: a list of the values and whose. A word that is
       no flag belongs to the flag before it. */ -}}
{{- define "ebs.nodeArgs" -}}
{{- $whose := index . 1 -}}
{{- $flags := include "ebs.helperFlags" . | splitList " " -}}
{{- $to := "agent" -}}
{{- $all := list -}}
{{- range (index . 0).additionalArgs -}}
  {{- if hasPrefix "-" . -}}
    {{- $to = has (splitList "=" . | first | trimPrefix "-" | trimPrefix "-") $flags | ternary "helper" "agent" -}}
  {{- end -}}
  {{- if eq $to $whose -}}{{- $all = append $all . -}}{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{- /* Whether an init container gives the directories of the agent's sockets to its user. Without the
       helper's container none starts as root: then the node itself does it. */ -}}
{{- define "ebs.givesDirectories" -}}
{{- if and (eq .agent.startAs "agent") .helper.enabled -}}yes{{- end -}}
{{- end -}}

{{- /* Of a DaemonSet that does not tolerate all taints: without the first the driver would never come
       to a node that waits for it, without the others volumes would stay on a node that is
       emptied. */ -}}
{{- define "ebs.ownTolerations" -}}
{{- range list "ebs.csi.aws.com/agent-not-ready" "ToBeDeletedByClusterAutoscaler" "karpenter.sh/disrupted" "karpenter.sh/disruption" }}
- {key: {{ . }}, operator: Exists}
{{- end }}
{{- end -}}

{{- /* One: a dict of root, name and node (the values). */ -}}
{{- define "ebs.node" -}}
{{- $root := .root -}}
{{- $node := .node -}}
{{- $ownUser := eq $node.agent.startAs "agent" -}}
{{- $gives := include "ebs.givesDirectories" $node -}}
{{- $sockets := and $ownUser (not $gives) | ternary "Directory" "DirectoryOrCreate" -}}
{{- $name := .name -}}
{{- $namespace := $node.namespaceOverride | default $root.Release.Namespace -}}
{{- $kubelet := trimSuffix "/" $node.kubeletPath -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "ebs.labels" $root | nindent 4 }}
  {{- with $node.daemonSetAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  revisionHistoryLimit: {{ $node.revisionHistoryLimit }}
  {{- with include "ebs.strategy" $node.updateStrategy }}
  updateStrategy:
    {{- . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      app: {{ $name }}
      {{- include "ebs.selectorLabels" $root | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "ebs.podLabels" (dict "root" $root "app" $name "labels" $node.podLabels) | nindent 8 }}
        # By this node-lifecycle finds the pods whose annotations it keeps.
        ebs.csi.aws.com/component: node-agent
        # At this port the agent says who holds a volume (deploy/docs/safe-detach.md).
        ebs.csi.aws.com/held-port: "9808"
      {{- with $node.podAnnotations }}
      annotations:
        {{- tpl (toYaml .) $root | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $node.serviceAccount.name }}
      # Nothing on a node speaks to Kubernetes.
      automountServiceAccountToken: false
      priorityClassName: {{ $node.priorityClassName }}
      hostNetwork: {{ $node.hostNetwork }}
      nodeSelector:
        kubernetes.io/os: linux
        {{- with $node.nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      tolerations:
        {{- if $node.tolerateAllTaints }}
        - operator: Exists
        {{- else }}
        {{- toYaml (concat ($node.tolerations | default list) (include "ebs.ownTolerations" . | fromYamlArray) | uniq) | nindent 8 }}
        {{- end }}
      {{- with include "ebs.affinity" (list $root $node.affinity) }}
      affinity:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with include "ebs.pullSecrets" $root }}
      {{- . | nindent 6 }}
      {{- end }}
      # The preStop hook, the agent's end and the helper's end, one after the other.
      terminationGracePeriodSeconds: {{ $node.terminationGracePeriodSeconds }}
      {{- with $node.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if or $node.initContainers $node.helper.enabled }}
      initContainers:
        {{- with $node.initContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- if $gives }}
        # Root, to give the directories of its sockets to the agent; ends before the agent starts.
        - name: give-directories
          image: {{ include "ebs.image" (list $root "nodeAgent") }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [give-directories]
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext:
            runAsUser: 0
            runAsGroup: 0
            runAsNonRoot: false
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL], add: [CHOWN]}
            seccompProfile: {type: RuntimeDefault}
          volumeMounts:
            - name: plugin
              mountPath: /csi
            - name: registry
              mountPath: /plugins_registry
        {{- end }}
        {{- if $node.helper.enabled }}
        # A sidecar: it starts before the agent and ends after it, so that the preStop hook still
        # finds who unmounts.
        - name: mount-helper
          image: {{ include "ebs.image" (list $root "mountHelper") }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          restartPolicy: Always
          args:
            {{- $args := list "--listen=unix:///run/ebs-csi/helper.sock" }}
            {{- $args = append $args (printf "--kubelet-root=%s" $kubelet) }}
            {{- $args = append $args "--paths=kubernetes" }}
            {{- $args = append $args (printf "--untrusted-images=%s" $node.helper.untrustedImages) }}
            {{- $args = append $args (printf "--nodev-nosuid=%s" (include "ebs.word" $node.helper.nodevNosuid)) }}
            {{- $args = append $args (printf "--disks-without-serial=%s" $node.helper.disksWithoutSerial) }}
            {{- $args = append $args (printf "--copied-mounts=%s" $node.helper.copiedMounts) }}
            {{- with $node.helper.toolDeadline }}
            {{- $args = append $args (printf "--tool-deadline=%d" (int .)) }}
            {{- end }}
            {{- if $node.helper.allowMissingLandlock }}
            {{- $args = append $args "--allow-missing-landlock" }}
            {{- end }}
            {{- $args = append $args (printf "--grace=%d" (int $node.helper.grace)) }}
            {{- $args = append $args (printf "--log-format=%s" $node.loggingFormat) }}
            {{- include "ebs.args" (list $args (concat (include "ebs.nodeArgs" (list $node "helper") | fromYamlArray) ($node.helper.additionalArgs | default list))) | nindent 12 }}
          {{- with $node.helper.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext:
            {{- /* Kubernetes refuses Bidirectional without privileged. */}}
            {{- $context := dict "privileged" true "readOnlyRootFilesystem" true "runAsUser" 0 "runAsGroup" 0 "runAsNonRoot" false }}
            {{- $context = include "ebs.over" (list $context ($node.containerSecurityContext | default dict)) | fromYaml }}
            {{- $context = include "ebs.over" (list $context ($node.helper.securityContext | default dict)) | fromYaml }}
            {{- with $node.helper.seLinuxOptions }}{{- $_ := set $context "seLinuxOptions" . }}{{- end }}
            {{- toYaml $context | nindent 12 }}
          volumeMounts:
            - name: kubelet
              mountPath: {{ $kubelet }}
              # Mounts are seen by kubelet and by the pods.
              mountPropagation: Bidirectional
            - name: devices
              mountPath: /dev
            - name: helper-socket
              mountPath: /run/ebs-csi
            {{- with $node.helper.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
        {{- end }}
      {{- end }}
      containers:
        - name: ebs-plugin
          image: {{ include "ebs.image" (list $root "nodeAgent") }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- $args := list "--endpoint=unix:///csi/csi.sock" }}
            {{- $args = append $args "--helper=unix:///run/ebs-csi/helper.sock" }}
            {{- $args = append $args (printf "--kubelet-registration-path=%s/plugins/ebs.csi.aws.com/csi.sock" $kubelet) }}
            {{- $args = append $args (printf "--metadata-sources=%s" ($node.metadataSources | default "kubernetes,imds")) }}
            {{- $args = append $args "--node-facts-file=/facts/labels" }}
            {{- $args = append $args "--node-facts-file=/facts/annotations" }}
            {{- $args = append $args (printf "--node-facts-timeout=%s" (include "ebs.factsTimeout" .)) }}
            {{- if not (kindIs "invalid" $node.volumeAttachLimit) }}
            {{- $args = append $args (printf "--volume-attach-limit=%d" (int $node.volumeAttachLimit)) }}
            {{- end }}
            {{- if not (kindIs "invalid" $node.reservedVolumeAttachments) }}
            {{- $args = append $args (printf "--reserved-volume-attachments=%d" (int $node.reservedVolumeAttachments)) }}
            {{- end }}
            {{- if $node.legacyXFS }}
            {{- $args = append $args "--legacy-xfs=true" }}
            {{- end }}
            {{- $args = append $args (printf "--http-endpoint=%s" (include "ebs.listen" (list $root 9808))) }}
            {{- $args = append $args (printf "--grace-period=%d" (int $node.agent.gracePeriod)) }}
            {{- $args = append $args (printf "--logging-format=%s" $node.loggingFormat) }}
            {{- $args = append $args (printf "--v=%s" (include "ebs.verbosity" (list $root $node.logLevel))) }}
            {{- include "ebs.args" (list $args (include "ebs.nodeArgs" (list $node "agent") | fromYamlArray)) | nindent 12 }}
          env:
            {{- $own := list (dict "name" "CSI_NODE_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "spec.nodeName"))) }}
            {{- $own = append $own (dict "name" "POD_UID" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.uid"))) }}
            {{- include "ebs.env" (list $own $node.env) | nindent 12 }}
          {{- with $node.envFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - name: http
              containerPort: 9808
          livenessProbe:
            httpGet:
              path: /healthz
              port: http
            initialDelaySeconds: 10
            periodSeconds: 10
            timeoutSeconds: 3
            failureThreshold: 5
          readinessProbe:
            httpGet:
              path: /readyz
              port: http
            periodSeconds: 5
            timeoutSeconds: 3
            failureThreshold: 3
          lifecycle:
            preStop:
              exec:
                command:
                  - /usr/bin/ebs-csi-node-agent
                  - pre-stop-hook
                  - --helper=unix:///run/ebs-csi/helper.sock
                  - --node-facts-file=/facts/labels
                  - --node-facts-file=/facts/annotations
                  - --timeout={{ include "ebs.preStopTimeout" . }}
          {{- with $node.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext:
            {{- /* Root until its sockets stand in kubelet's directories; then it takes its own
                   user, for which it needs the three. Its own group opens the directories that
                   startAs agent has left. With that it is the user, as
                   policy/sandbox/node-agent.toml has it, from the start. */}}
            {{- $context := dict "runAsUser" 0 "runAsGroup" 65524 "runAsNonRoot" false "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true }}
            {{- $_ := set $context "capabilities" (dict "drop" (list "ALL") "add" (list "SETUID" "SETGID" "SETPCAP")) }}
            {{- if $ownUser }}
            {{- $_ := set $context "runAsUser" 65524 }}{{ $_ := set $context "runAsNonRoot" true }}
            {{- $_ := set $context "capabilities" (dict "drop" (list "ALL")) }}
            {{- end }}
            {{- $_ := set $context "seccompProfile" (dict "type" "RuntimeDefault") }}
            {{- $context = include "ebs.over" (list $context ($node.agent.securityContext | default dict)) | fromYaml }}
            {{- with $node.agent.seLinuxOptions }}{{- $_ := set $context "seLinuxOptions" . }}{{- end }}
            {{- toYaml $context | nindent 12 }}
          volumeMounts:
            - name: plugin
              mountPath: /csi
            - name: registration
              mountPath: /registration
            - name: helper-socket
              mountPath: /run/ebs-csi
            - name: facts
              mountPath: /facts
              readOnly: true
            {{- with $node.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- if $node.helper.enabled }}
        - name: kubelet
          hostPath: {path: {{ $kubelet }}, type: Directory}
        {{- end }}
        - name: plugin
          hostPath: {path: {{ $kubelet }}/plugins/ebs.csi.aws.com, type: {{ $sockets }}}
        {{- if $ownUser }}
        # Kubelet also looks in directories beneath its own, where root alone may make entries.
        - name: registration
          hostPath: {path: {{ $kubelet }}/plugins_registry/ebs-csi, type: {{ $sockets }}}
        {{- if $gives }}
        - name: registry
          hostPath: {path: {{ $kubelet }}/plugins_registry, type: Directory}
        {{- end }}
        {{- else }}
        - name: registration
          hostPath: {path: {{ $kubelet }}/plugins_registry, type: Directory}
        {{- end }}
        {{- if $node.helper.enabled }}
        - name: devices
          hostPath: {path: {{ $node.helper.devicePath }}, type: Directory}
        {{- end }}
        # What the helper remembers of disks without a serial lies there, too.
        - name: helper-socket
          hostPath: {path: {{ $node.helper.socketDirectory }}, type: {{ $node.helper.enabled | ternary "DirectoryOrCreate" "Directory" }}}
        # What Kubernetes and node-lifecycle say about the node, on the agent's own pod.
        - name: facts
          downwardAPI:
            items:
              - {path: labels, fieldRef: {fieldPath: metadata.labels}}
              - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
        {{- with $node.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}

{{- /* What the pods of one node's values have: the containers that are privileged, the capabilities
       that containers add, the paths of the host, the volumes of Secrets. */ -}}
{{- define "ebs.nodePrivileges" -}}
{{- $kubelet := trimSuffix "/" .kubeletPath -}}
{{- $privileged := .helper.enabled | ternary (list "mount-helper") list -}}
{{- $ownUser := eq .agent.startAs "agent" -}}
{{- $gives := include "ebs.givesDirectories" . -}}
{{- $capabilities := $ownUser | ternary list (list "SETUID" "SETGID" "SETPCAP") -}}
{{- if $gives -}}{{- $capabilities = list "CHOWN" -}}{{- end -}}
{{- $contexts := list .containerSecurityContext .helper.securityContext .agent.securityContext -}}
{{- range .initContainers -}}
  {{- $contexts = append $contexts .securityContext -}}
  {{- if (.securityContext | default dict).privileged -}}{{- $privileged = append $privileged .name -}}{{- end -}}
{{- end -}}
{{- range $contexts -}}
  {{- $capabilities = concat $capabilities (dig "capabilities" "add" list (. | default dict)) -}}
{{- end -}}
{{- $paths := list (printf "%s/plugins/ebs.csi.aws.com" $kubelet) -}}
{{- if or $gives (not $ownUser) -}}{{- $paths = append $paths (printf "%s/plugins_registry" $kubelet) -}}{{- end -}}
{{- if $ownUser -}}{{- $paths = append $paths (printf "%s/plugins_registry/ebs-csi" $kubelet) -}}{{- end -}}
{{- if .helper.enabled -}}{{- $paths = concat (list $kubelet) $paths (list .helper.devicePath) -}}{{- end -}}
{{- $paths = append $paths .helper.socketDirectory -}}
{{- $secrets := list -}}
{{- range .volumes -}}
  {{- with .hostPath -}}{{- $paths = append $paths .path -}}{{- end -}}
  {{- if .secret -}}{{- $secrets = append $secrets .name -}}{{- end -}}
{{- end -}}
{{- /* An empty list that concat makes becomes null, which CEL refuses; uniq makes it a list. */ -}}
{{- dict "privileged" $privileged "capabilities" (uniq $capabilities) "hostPaths" $paths "secrets" $secrets | toYaml -}}
{{- end -}}
