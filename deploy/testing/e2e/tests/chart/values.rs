//! What single values change, what the chart refuses, and what it only notes.

use std::collections::BTreeSet;

use serde_json::json;

use crate::{SNAPSHOTS, arguments, containers, find, helm, pods, render, text};

#[test]
fn zero_and_false_values_override_defaults() {
    let Some(helm) = helm() else { return };
    let (controller, node) = ("ebs-csi-controller", "ebs-csi-node");
    for (set, name, container, flag) in [
        ("node.reservedVolumeAttachments=0", node, "ebs-plugin", "--reserved-volume-attachments=0"),
        ("node.logLevel=0", node, "ebs-plugin", "--v=0"),
        ("node.agent.factsTimeout=0", node, "ebs-plugin", "--node-facts-timeout=0"),
        ("node.helper.grace=0", node, "mount-helper", "--grace=0"),
        ("onboarding.enabled=true", controller, "node-lifecycle", "--onboarding=on"),
        ("onboarding.enabled=false", controller, "node-lifecycle", "--onboarding=off"),
        ("onboarding.taint=false", controller, "node-lifecycle", "--onboarding=off"),
        (
            "node.serviceAccount.disableMutation=true",
            controller,
            "node-lifecycle",
            "--onboarding=off",
        ),
    ] {
        let objects = render(&helm, &["--set", set]);
        assert!(arguments(&objects, name, container).contains(&flag), "{set}");
    }
    let budget = |set: &str, key: &str| {
        let objects = render(&helm, &["--set", set]);
        let budget = find(&objects, "PodDisruptionBudget", controller);
        budget.expect("a budget")["spec"][key].clone()
    };
    let of = "controller.podDisruptionBudget";
    assert_eq!(budget(&format!("{of}.maxUnavailable=0"), "maxUnavailable"), 0);
    assert_eq!(budget(&format!("{of}.minAvailable=0"), "minAvailable"), 0);
    let period = "nodeAllocatableUpdatePeriodSeconds";
    let objects = render(&helm, &["--set", &format!("{period}=0")]);
    let driver = find(&objects, "CSIDriver", "ebs.csi.aws.com").expect("the driver");
    assert!(driver["spec"][period].is_null());
    let none = render(&helm, &["--set", "node.enableLinux=false"]);
    assert!(!none.iter().any(|it| it["kind"] == "DaemonSet"));
    // An additional DaemonSet's own values override those of `node`.
    let merged = render(
        &helm,
        &[
            "--set",
            "node.reservedVolumeAttachments=9,additionalDaemonSets.x.reservedVolumeAttachments=0",
            "--set",
            "node.helper.enabled=true,additionalDaemonSets.x.helper.enabled=false",
        ],
    );
    let own = find(&merged, "DaemonSet", "ebs-csi-node-x").expect("a DaemonSet");
    assert!(own.to_string().contains("--reserved-volume-attachments=0"));
    assert!(own["spec"]["template"]["spec"]["initContainers"].is_null());
}

/// The Go driver's chart puts the registry before a repository that names one already, and puts no
/// slash between.
#[test]
fn registry_goes_before_repositories_without_one() {
    let Some(helm) = helm() else { return };
    let images = |values: &str| -> BTreeSet<String> {
        let objects = render(&helm, &["--set", values]);
        let all = pods(&objects).into_iter().flat_map(|(_, pod)| containers(pod));
        all.map(|(_, it)| it["image"].as_str().expect("an image").to_owned()).collect()
    };
    for registry in ["reg.test/mirror", "reg.test/mirror/", "harbor"] {
        let own = registry.trim_end_matches('/');
        let found = images(&format!(
            "image.containerRegistry={registry},sidecars.attacher.image.repository=csi-attacher,\
             images.nodeAgent.repository=localhost/agent,sidecars.resizer.image.repository=r:5/resizer"
        ));
        for expected in [
            &format!("{own}/ebs-csi-controller:v0.1.0"),
            &format!("{own}/ebs-csi-mount-helper:v0.1.0"),
            &format!("{own}/csi-attacher:v4.12.0"),
            "localhost/agent:v0.1.0",
            "r:5/resizer:v2.2.1",
            "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0",
        ] {
            assert!(found.contains(expected), "{expected}: {found:?}");
        }
    }
    let digest = format!("sha256:{}", "0".repeat(64));
    for (key, repository) in [
        ("images.controller", "registry.example.com/ebs-csi-controller"),
        ("sidecars.provisioner.image", "registry.k8s.io/sig-storage/csi-provisioner"),
        ("sidecars.attacher.image", "registry.k8s.io/sig-storage/csi-attacher"),
        ("sidecars.resizer.image", "registry.k8s.io/sig-storage/csi-resizer"),
    ] {
        let found = images(&format!("{key}.digest={digest}"));
        assert!(found.contains(&format!("{repository}@{digest}")), "{key}: {found:?}");
    }
}

/// In a namespace with a ResourceQuota, a pod without requests and limits is refused.
#[test]
fn helm_test_pod_has_resources_of_values() {
    let Some(helm) = helm() else { return };
    let resources = |values: &str| {
        let objects = render(&helm, &["--set", values]);
        let pod = find(&objects, "Pod", "ebs-csi-helm-test").expect("the pod");
        pod["spec"]["containers"][0]["resources"].clone()
    };
    let ours = json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}});
    assert_eq!(resources("nameOverride="), ours);
    let more = resources("helmTester.resources.limits.cpu=1");
    assert_eq!(more["limits"], json!({"cpu": 1, "memory": "64Mi"}));
    assert!(resources("helmTester.resources=null").is_null());
}

/// csi-snapshotter notices that a snapshot is ready at its next retry.
#[test]
fn snapshotter_retries_at_least_every_minute() {
    let Some(helm) = helm() else { return };
    let longest = "--retry-interval-max=";
    for (values, expected) in [
        ("sidecars.snapshotter.forceEnable=true", "1m"),
        (
            "sidecars.snapshotter.forceEnable=true,sidecars.snapshotter.additionalArgs={--retry-interval-max=9m}",
            "9m",
        ),
    ] {
        let objects = render(&helm, &["--set", values]);
        let words = arguments(&objects, "ebs-csi-controller", "csi-snapshotter");
        let found: Vec<_> = words.iter().filter_map(|word| word.strip_prefix(longest)).collect();
        assert_eq!(found, [expected], "{values}");
    }
}

/// The right extends to the groups of other drivers. Without it, the sidecar's own default would
/// call the definitions missing.
#[test]
fn group_snapshots_come_with_flags_and_right() {
    let Some(helm) = helm() else { return };
    for on in [true, false] {
        let set = format!("groupSnapshots.enabled={on}");
        let objects = render(&helm, &[&SNAPSHOTS[..], &["--set", &set]].concat());
        let has = |container: &str, flag: &str| {
            arguments(&objects, "ebs-csi-controller", container).contains(&flag)
        };
        assert_eq!(has("ebs-plugin", "--enable-group-snapshots=true"), on);
        assert!(has("csi-snapshotter", &format!("--feature-gates=CSIVolumeGroupSnapshot={on}")));
        assert_eq!(has("csi-snapshotter", "--resync-period=1m"), on);
        let role = |it: &serde_json::Value| {
            it["kind"] == "ClusterRole" && it.to_string().contains("groupsnapshot.storage")
        };
        assert_eq!(objects.iter().any(role), on);
    }
}

/// Helm keeps the default's `rollingUpdate` beside a type of the user's.
#[test]
fn other_update_strategy_drops_rolling_update() {
    let Some(helm) = helm() else { return };
    let values = "controller.updateStrategy.type=Recreate,node.updateStrategy.type=OnDelete";
    let objects = render(&helm, &["--set", values]);
    for (kind, name, key, expected) in [
        ("Deployment", "ebs-csi-controller", "strategy", "Recreate"),
        ("DaemonSet", "ebs-csi-node", "updateStrategy", "OnDelete"),
    ] {
        let object = find(&objects, kind, name).expect(name);
        assert_eq!(object["spec"][key], json!({"type": expected}), "{name}");
    }
}

/// Values that the chart refuses, and words of the error message. The schema refuses the last ones.
const REFUSED: &str = r#"
image.containerRegistry= | ebs-csi-controller:v | images/push REGISTRY | image.containerRegistry=REGISTRY
image.containerRegistry=,nodeComponentOnly=true | ebs-csi-node-agent:v | images/push REGISTRY
image.containerRegistry=,image.repository=r.test/x,sidecars.attacher.image.repository=csi-attacher | csi-attacher:v
image.repository=x/aws-ebs-csi-driver | image.repository | image.mirrorOfThisDriver
fips=true | fips | fipsEndpointsOnly
health=livenessprobe | health | agent
node.registration=registrar | node.registration | agent
safeDetach.mode=enforce | safeDetach.mode | safeDetach.gate
safeDetach.failover=kep | safeDetach.failover | safeDetach.mode
safeDetach.gate=true,safeDetach.mode=ec2-only,safeDetach.failover=kep | safeDetach.failover | enforce
safeDetach.fence=stop | safeDetach.fence | safeDetach.failover
podSecurityLabels=true | podSecurityLabels | label the namespace
controller.securityContext.runAsUser=0 | controller.securityContext | other user
controller.containerSecurityContext.runAsUser=0 | containerSecurityContext | other user
controller.containerSecurityContext.privileged=true | containerSecurityContext | Leave
sidecars.attacher.securityContext.privileged=true | sidecars.attacher | Leave
node.agent.securityContext.privileged=true | node.agent | Leave
node.containerSecurityContext.privileged=false | node.containerSecurityContext | Leave
node.securityContext.runAsUser=1000 | node.securityContext | Leave
node.securityContext.runAsNonRoot=true | node.securityContext | Leave
node.helper.securityContext.runAsUser=1 | node.helper.securityContext | Leave
node.windowsHostProcess=true | node.windowsHostProcess | Keep the Go driver
node.volumeAttachLimit=1,node.reservedVolumeAttachments=0 | volumeAttachLimit | Give one
node.envFrom[0].secretRef.name=s | node.envFrom | controller.envFrom
node.env[0].name=N,node.env[0].valueFrom.secretKeyRef.name=s | node.env N | controller.env
node.env[0].name=AWS_ACCESS_KEY_ID,node.env[0].value=k | node.env AWS_ACCESS_KEY_ID | controller.env
node.env[0].name=AWS_WEB_IDENTITY_TOKEN_FILE,node.env[0].value=k | node.env AWS_WEB_IDENTITY_TOKEN_FILE | controller.env
additionalDaemonSets.x.env[0].name=AWS_PROFILE,additionalDaemonSets.x.env[0].value=k | additionalDaemonSets.x.env AWS_PROFILE | controller.env
sidecars.resizer.env[0].name=AWS_SECRET_ACCESS_KEY,sidecars.resizer.env[0].value=k | sidecars.resizer.env AWS_SECRET_ACCESS_KEY | controller.env
node.serviceAccount.name=ebs-csi-controller-sa | node.serviceAccount.name ebs-csi-controller-sa | AWS role | account of their own
controller.serviceAccount.name=one,node.serviceAccount.name=one,node.serviceAccount.foreign=true | node.serviceAccount.name one | AWS role
additionalDaemonSets.x.serviceAccount.name=ebs-csi-controller-sa | additionalDaemonSets.x.serviceAccount.name | AWS role
node.serviceAccount.annotations.eks\.amazonaws\.com/role-arn=r | role-arn | serviceAccount.foreign
node.podAnnotations.ebs\.csi\.aws\.com/zone=z | node.podAnnotations | Remove it
node.volumeMounts[0].name=v,node.volumeMounts[0].mountPath=/dev/x | /dev | elsewhere
node.volumeMounts[0].name=v,node.volumeMounts[0].mountPath=/var/lib | /var/lib/kubelet | elsewhere
node.helper.volumeMounts[0].name=v,node.helper.volumeMounts[0].mountPath=/run/ebs-csi/ | /run/ebs-csi | elsewhere
node.terminationGracePeriodSeconds=10 | terminationGracePeriodSeconds | at least 13
node.agent.preStopTimeout=30 | node.agent.preStopTimeout | at least 42
additionalDaemonSets.x.volumeAttachLimit=1,additionalDaemonSets.x.reservedVolumeAttachments=1 | additionalDaemonSets.x.volumeAttachLimit | Give one
additionalDaemonSets.windows.logLevel=2 | additionalDaemonSets.windows | lower-case
storageClasses[0].name=c,storageClasses[0].parameters.sype=gp3 | "sype" | Known are
prometheusRule.enabled=true,controller.enableMetrics=true | prometheusRule.enabled | node.enableMetrics
prometheusRule.enabled=true,node.enableMetrics=true | prometheusRule.enabled | controller.enableMetrics
controller.extraVolumeTags.a=b\,c=d | controller.extraVolumeTags a | comma
controller.extraVolumeTags.a\,b=c | controller.extraVolumeTags a,b | comma
controller.defaultFsType=btrfs | defaultFsType | ext4
storageClasses[0].name=c,storageClasses[0].parameters.type=gp9 | storageClasses: c parameters.type | gp3
storageClasses[0].name=c,storageClasses[0].parameters.iops=lots | storageClasses: c parameters.iops | "lots" is not a whole number
storageClasses[0].name=c,storageClasses[0].parameters.encrypted=true | storageClasses: c parameters.encrypted | write "true"
storageClasses[0].name=c,storageClasses[0].parameters.iops=3000 | storageClasses: c parameters.iops | write "3000"
storageClasses[0].name=c,storageClasses[0].parameters.Encrypted=yes | storageClasses: c parameters.Encrypted | "yes" is none of true, false
storageClasses[0].name=c,storageClasses[0].parameters.csi\.storage\.k8s\.io/fstype=btrfs | parameters.csi.storage.k8s.io/fstype | ext3
storageClasses[0].name=c,storageClasses[0].parameters.tagSpecification_1=team | parameters.tagSpecification_1 | key=value
storageClasses[0].name=c,storageClasses[0].parameters.tagSpecification_1=kubernetes.io/x=1 | parameters.tagSpecification_1 | Use another key
volumeAttributesClasses[0].name=c,volumeAttributesClasses[0].parameters.type=gp9 | volumeAttributesClasses: c parameters.type | gp3
volumeAttributesClasses[0].name=c,volumeAttributesClasses[0].parameters.iopsPerGB=9 | volumeAttributesClasses: c
volumeAttributesClasses[0].name=c,volumeAttributesClasses[0].parameters.encrypted=yes | "encrypted" | Known are: type, volumeType
volumeSnapshotClasses[0].name=c,volumeSnapshotClasses[0].parameters.lock=no | volumeSnapshotClasses: c | Known are
controller.volumeModificationFeature.enabled=true,sidecars.resizer.leaderElection.enabled=false | controller.volumeModificationFeature.enabled | sidecars.resizer.leaderElection.enabled
node.updateStrategy.type=Recreate | node.updateStrategy.type: Recreate | OnDelete
additionalDaemonSets.x.updateStrategy.type=Recreate | additionalDaemonSets.x.updateStrategy.type: Recreate | OnDelete
controller.updateStrategy.type=OnDelete | controller.updateStrategy.type: OnDelete | Recreate
controller.resources.limits.memory=12 GB | controller.resources.limits.memory | 256Mi
node.resources.requests.cpu=half | node.resources.requests.cpu | 100m
node.helper.resources.limits.memory=1GB | node.helper.resources.limits.memory | 256Mi
controller.nodeLifecycle.resources.limits.memory=1mb | controller.nodeLifecycle.resources.limits.memory | 256Mi
helmTester.resources.limits.memory=64 MB | helmTester.resources.limits.memory | 256Mi
sidecars.attacher.resources.limits.memory=-1Mi | sidecars.attacher.resources.limits.memory | 256Mi
networkPolicy.apiServer.cidrs={10.0.0.1} | networkPolicy.apiServer.cidrs | 10.0.0.1/32
networkPolicy.aws.cidrs={fd00::1} | networkPolicy.aws.cidrs | fd00::1/128
networkPolicy.aws.cidrs={ec2.amazonaws.com} | networkPolicy.aws.cidrs | mask
controller.serviceAccount.name= | controller.serviceAccount.name | Give a name
node.serviceAccount.name=null | node.serviceAccount.name | Give a name
controller.extraVolumeTags.CSIVolumeName=x | controller.extraVolumeTags CSIVolumeName | another key
controller.extraVolumeTags.kubernetes\.io/team=x | controller.extraVolumeTags kubernetes.io/team | another key
node.volumeAttachLimit=0 | node.volumeAttachLimit 0 | no limit
additionalDaemonSets.x.volumeAttachLimit=0 | additionalDaemonSets.x.volumeAttachLimit 0 | no limit
images.architectures={x86_64} | architectures | amd64
sidecars.resizer.image.pullPolicy=Sometimes | pullPolicy | IfNotPresent
controller.podDisruptionBudget.unhealthyPodEvictionPolicy=Yes | unhealthyPodEvictionPolicy | AlwaysAllow
controller.serviceMonitor.interval=soon | interval
sidecars.attacher.leaderElection.leaseDuration=soon | leaseDuration
node.noSuchKey=1 | noSuchKey | configuration.md
admissionPolicies.nodePods=perhaps | nodePods
networkPolicy.dnsPorts={0} | dnsPorts
node.helper.untrustedImages=perhaps | untrustedImages
node.metadataSources=guess | metadataSources
node.agent.startAs=nobody | startAs
node.volumeAttachLimit=-1 | volumeAttachLimit
safeDetach.mode=strict | safeDetach/mode
controller.replicaCount=two | replicaCount
storageClasses[0].parameters.type=gp3 | storageClasses | name
images.nodeAgent.digest=latest | digest
sidecars.attacher.image.digest=v1 | digest
"#;

#[test]
fn each_refusal_names_its_key_and_next_step() {
    let Some(helm) = helm() else { return };
    for line in REFUSED.lines().skip(1) {
        let (values, words) = line.split_once(" | ").expect(line);
        let error = text(&helm, &["--set", values]).expect_err(values);
        for word in words.split(" | ") {
            assert!(error.contains(word), "{values}: no {word:?} in: {error}");
        }
    }
    // The values that the refusals ask for are accepted.
    for values in [
        "image.repository=x/aws-ebs-csi-driver,image.mirrorOfThisDriver=true",
        "image.containerRegistry=,image.pullPolicy=Never",
        "image.containerRegistry=,image.repository=r.test/x",
        "fips=true,fipsEndpointsOnly=true",
        "fips=true,image.tag=v1-fips",
        "node.serviceAccount.annotations.eks\\.amazonaws\\.com/role-arn=r,node.serviceAccount.foreign=true",
        "node.serviceAccount.name=ebs-csi-controller-sa,node.namespaceOverride=nodes",
        "node.env[0].name=AWS_EC2_METADATA_SERVICE_ENDPOINT,node.env[0].value=http://192.0.2.1",
        "node.terminationGracePeriodSeconds=13",
        "node.agent.preStopTimeout=30,node.terminationGracePeriodSeconds=42",
        "prometheusRule.enabled=true,controller.enableMetrics=true,node.enableMetrics=true",
        "prometheusRule.enabled=true,nodeComponentOnly=true",
        "controller.extraVolumeTags.CSIVolumeName=x,controller.additionalArgs={--warn-on-invalid-tag}",
        "controller.resources.limits.memory=268435456,node.resources.limits.memory=1e9",
        "storageClasses[0].name=c,storageClasses[0].parameters.type=gp3,storageClasses[0].parameters.iops=",
        "storageClasses[0].name=c,storageClasses[0].provisioner=other,storageClasses[0].parameters.x=1",
        "safeDetach.mode=false,node.helper.nodevNosuid=true",
    ] {
        text(&helm, &["--set", values]).unwrap_or_else(|why| panic!("{values}: {why}"));
    }
}

/// Values without an effect, and a word of the note about them.
const NOTED: &str = "
fullnameOverride=x | fullnameOverride
controller.batching=false | controller.batching
controller.env[0].name=LOST,controller.env[0].value=x | controller.env LOST
helmTester.image=x | helmTester.image
node.hostNetwork=true | hostNetwork
node.hostNetwork=true,networkPolicy.enabled=true | networkPolicy
node.otelTracing.otelServiceName=x | otelTracing
node.dnsConfig.nameservers[0]=192.0.2.1 | dnsConfig
node.serviceAccount.disableMutation=true | disableMutation
node.probeDirVolume.hostPath.path=/x | probeDirVolume
sidecars.livenessProbe.image.tag=v1 | sidecars.livenessProbe
sidecars.metadataLabeler.enabled=true | sidecars.metadataLabeler
volumeSnapshotClasses[0].name=x | volumeSnapshotClasses
groupSnapshots.enabled=true | groupSnapshots.enabled
nodeComponentOnly=true | nodeComponentOnly
admissionPolicies.enabled=false | onboarding.nodeFacts
";

#[test]
fn attributes_class_has_version_that_cluster_serves() {
    let Some(helm) = helm() else { return };
    let class =
        "volumeAttributesClasses[0].name=quick,volumeAttributesClasses[0].parameters.type=gp3";
    let rows = [("1.29.0", None), ("1.30.0", None), ("1.34.0", Some("storage.k8s.io/v1"))];
    for (kubernetes, version) in rows {
        let rendered = text(&helm, &["--kube-version", kubernetes, "--set", class]);
        let rendered = rendered.expect(kubernetes);
        let found = rendered.split_once("\nkind: VolumeAttributesClass\n").map(|(before, _)| {
            before
                .rsplit_once("apiVersion: ")
                .map(|(_, version)| version.trim())
                .expect("a version")
        });
        assert_eq!(found, version, "Kubernetes {kubernetes}");
        let noted = rendered.contains("# Noted: volumeAttributesClasses are left out");
        assert_eq!(noted, version.is_none(), "Kubernetes {kubernetes}");
    }
    // The sidecars read v1 alone: a volume would be made without what its class says.
    for kubernetes in ["1.31.0", "1.33.0"] {
        let arguments = ["--kube-version", kubernetes, "--set", class];
        let error = text(&helm, &arguments).expect_err(kubernetes);
        for words in ["volumeAttributesClasses: Kubernetes v1.3", "v1beta1", "Kubernetes 1.34"] {
            assert!(error.contains(words), "{kubernetes}: no {words:?} in: {error}");
        }
        text(&helm, &["--kube-version", kubernetes]).expect("without a class");
        let nodes =
            ["--kube-version", kubernetes, "--set", class, "--set", "nodeComponentOnly=true"];
        text(&helm, &nodes).expect("the nodes alone");
    }
}

#[test]
fn values_without_effect_are_noted_in_output() {
    let Some(helm) = helm() else { return };
    let quiet = text(&helm, &[]).expect("the defaults");
    assert!(!quiet.contains("# Noted: "), "the defaults need no word");
    for line in NOTED.lines().skip(1) {
        let (values, word) = line.split_once(" | ").expect(line);
        let rendered = text(&helm, &["--set", values]).expect(values);
        let noted =
            rendered.lines().any(|line| line.starts_with("# Noted: ") && line.contains(word));
        assert!(noted, "{values}: no note about {word}");
    }
}
