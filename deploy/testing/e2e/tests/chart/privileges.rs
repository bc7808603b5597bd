//! What clusters with admission rules need: the policy for the node pods, the Pod Security
//! Standards, the exceptions for Kyverno, and the rights by which node-lifecycle writes facts for
//! the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use ebs_csi_e2e::program::output;
use ebs_csi_policy::profile::NODE_AGENT;
use serde_json::{Value, json};

use crate::{
    REGISTRY, arguments, array, containers, each, find, helm, pods, read, render, root, text, yaml,
};

/// Returns the JSON list that follows `before` in one of the policy's expressions.
fn listed(policy: &Value, before: &str) -> BTreeSet<String> {
    let expressions = array(&policy["spec"]["validations"]);
    let texts = expressions.iter().filter_map(|it| it["expression"].as_str());
    let list = texts
        .filter_map(|text| text.split_once(before))
        .find_map(|(_, rest)| rest.split_inclusive(']').next())
        .unwrap_or_else(|| panic!("no {before}"));
    serde_json::from_str(list).unwrap_or_else(|e| panic!("{list}: {e}"))
}

fn texts<'a>(values: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    values.map(|value| value.as_str().expect("a text").to_owned()).collect()
}

/// The policy allows what the DaemonSet has, for each set of values: no less, or no pod would
/// start, and no more.
#[test]
fn node_policy_allows_exactly_daemonset_privileges() {
    let Some(helm) = helm() else { return };
    let mut seen = 0;
    each(&helm, |set, objects| {
        let daemonsets = objects.iter().filter(|it| it["kind"] == "DaemonSet");
        for daemonset in daemonsets {
            let name = daemonset["metadata"]["name"].as_str().expect("a name");
            let at = format!("{set}: {name}");
            let Some(policy) = find(objects, "ValidatingAdmissionPolicy", name) else {
                let old = set.contains("1.29.0") || set.contains("node-only.yaml");
                assert!(old, "{at}: no policy");
                continue;
            };
            let bound = find(objects, "ValidatingAdmissionPolicyBinding", name);
            assert_eq!(bound.expect("a binding")["spec"]["policyName"], name, "{at}");
            let matches = &policy["spec"]["matchConstraints"];
            let selector = &daemonset["spec"]["selector"]["matchLabels"];
            assert_eq!(matches["objectSelector"]["matchLabels"], *selector, "{at}");
            let namespace = json!({
                "kubernetes.io/metadata.name": daemonset["metadata"]["namespace"],
            });
            assert_eq!(matches["namespaceSelector"]["matchLabels"], namespace, "{at}");

            let pod = &daemonset["spec"]["template"]["spec"];
            let all = || array(&pod["initContainers"]).iter().chain(array(&pod["containers"]));
            let is_privileged = |it: &&Value| it["securityContext"]["privileged"] == true;
            let privileged = all().filter(is_privileged).map(|it| &it["name"]);
            assert_eq!(listed(policy, "c.name in "), texts(privileged), "{at}");
            let adds = all().flat_map(|it| array(&it["securityContext"]["capabilities"]["add"]));
            assert_eq!(listed(policy, "all(a, a in "), texts(adds), "{at}");
            let volumes = || array(&pod["volumes"]).iter();
            let paths = volumes().filter(|it| it["hostPath"].is_object());
            let paths = texts(paths.map(|it| &it["hostPath"]["path"]));
            assert_eq!(listed(policy, "v.hostPath.path in "), paths, "{at}");
            let secrets = volumes().filter(|it| it["secret"].is_object()).map(|it| &it["name"]);
            assert_eq!(listed(policy, "v.name in "), texts(secrets), "{at}");
            let whole = policy.to_string();
            let forbids = whole.contains("object.spec.?hostNetwork");
            assert_eq!(forbids, pod["hostNetwork"] != true, "{at}");
            seen += 1;
        }
    });
    assert!(seen >= 12, "{seen}");
}

#[test]
fn node_policy_follows_its_switches() {
    let Some(helm) = helm() else { return };
    let actions = |values: &str| {
        let objects = render(&helm, &["--set", values]);
        let binding = find(&objects, "ValidatingAdmissionPolicyBinding", "ebs-csi-node");
        binding.map(|it| it["spec"]["validationActions"].clone())
    };
    assert_eq!(actions("nameOverride="), Some(json!(["Deny"])));
    let warns = actions("admissionPolicies.nodePods=warn");
    assert_eq!(warns, Some(json!(["Warn", "Audit"])));
    assert_eq!(actions("admissionPolicies.nodePods=off"), None);
    assert_eq!(actions("admissionPolicies.nodePods=false"), None);
    assert_eq!(actions("admissionPolicies.enabled=false"), None);
    // While the Go driver's pods share the account, a webhook adds their role's token here as well.
    let token = |values: &str| {
        let objects = render(&helm, &["--set", values]);
        let policy = find(&objects, "ValidatingAdmissionPolicy", "ebs-csi-node");
        policy.expect("a policy").to_string().contains("serviceAccountToken")
    };
    assert!(token("nameOverride="));
    assert!(!token("node.serviceAccount.foreign=true"));
    let privileged = "node.initContainers[0].name=first,node.initContainers[0].image=x,\
                      node.initContainers[0].securityContext.privileged=true";
    let objects = render(&helm, &["--set", privileged]);
    let policy = find(&objects, "ValidatingAdmissionPolicy", "ebs-csi-node");
    let names = listed(policy.expect("a policy"), "c.name in ");
    assert_eq!(names, BTreeSet::from(["first", "mount-helper"].map(str::to_owned)));
}

fn node_pod(helm: &Path, values: &str) -> Value {
    let objects = render(helm, &["--set", values]);
    let daemonset = find(&objects, "DaemonSet", "ebs-csi-node").expect("a DaemonSet");
    daemonset["spec"]["template"]["spec"].clone()
}

fn host_paths(pod: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let paths = array(&pod["volumes"]).iter().map(|it| &it["hostPath"]);
    let paths = paths.filter(|it| it.is_object());
    paths.map(|it| (text(&it["path"]), text(&it["type"]))).collect()
}

#[test]
fn agent_starts_as_own_user_without_capabilities() {
    let Some(helm) = helm() else { return };
    let pod = node_pod(&helm, "node.agent.startAs=agent");
    let own = NODE_AGENT.identity;
    let context = &pod["containers"][0]["securityContext"];
    assert_eq!(context["runAsUser"], own.uid);
    assert_eq!(context["runAsGroup"], own.gid);
    assert_eq!(context["runAsNonRoot"], true);
    assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
    // The init container makes what the agent mounts.
    let given = &pod["initContainers"][0];
    assert_eq!(given["args"], json!(["give-directories"]));
    let source = read("node-agent/src/registration/own_directories.rs");
    let directory = source.split_once("DIRECTORY: &str = \"").expect("DIRECTORY").1;
    let directory = directory.split('"').next().unwrap_or_default();
    let kubelet = "/var/lib/kubelet";
    let paths = host_paths(&pod);
    let registration = format!("{kubelet}/plugins_registry/{directory}");
    assert_eq!(paths[&registration], "DirectoryOrCreate");
    assert_eq!(paths[&format!("{kubelet}/plugins_registry")], "Directory");
}

#[test]
fn pod_without_helper_container_mounts_sockets_only() {
    let Some(helm) = helm() else { return };
    let pod = node_pod(&helm, "node.helper.enabled=false,node.agent.startAs=agent");
    assert!(pod["initContainers"].is_null());
    let paths = [
        "/run/ebs-csi",
        "/var/lib/kubelet/plugins/ebs.csi.aws.com",
        "/var/lib/kubelet/plugins_registry/ebs-csi",
    ];
    // Kubelet must not make them as root's.
    let expected = paths.map(|path| (path.to_owned(), "Directory".to_owned()));
    assert_eq!(host_paths(&pod), BTreeMap::from(expected));
    let agent = &pod["containers"][0];
    let mounts = array(&agent["volumeMounts"]).iter();
    let socket = mounts.filter(|it| it["mountPath"] == "/run/ebs-csi");
    assert_eq!(socket.count(), 1);
    assert!(agent["args"].to_string().contains("--helper=unix:///run/ebs-csi/helper.sock"));
}

/// What the standard `restricted` demands of a pod
/// (<https://kubernetes.io/docs/concepts/security/pod-security-standards/>), so that a namespace of
/// the controller alone can enforce it.
#[test]
fn controller_pod_meets_restricted_pod_security_standard() {
    let Some(helm) = helm() else { return };
    let mut seen = 0;
    each(&helm, |set, objects| {
        let beside = ["ebs-csi-controller", "ebs-csi-preflight-cluster"];
        for (_, pod) in pods(objects).into_iter().filter(|(name, _)| beside.contains(name)) {
            for key in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod[key].is_null(), "{set}: {key}");
            }
            let of_pod = &pod["securityContext"];
            let may = "configMap csi downwardAPI emptyDir ephemeral persistentVolumeClaim \
                       projected secret";
            for volume in array(&pod["volumes"]) {
                let kinds = volume.as_object().expect("a volume").keys();
                for kind in kinds.filter(|kind| *kind != "name") {
                    assert!(may.split(' ').any(|it| it == kind), "{set}: {kind}");
                }
            }
            for (name, container) in containers(pod) {
                let at = format!("{set}: {name}");
                let own = &container["securityContext"];
                let either = |key: &str| {
                    if own[key].is_null() { &of_pod[key] } else { &own[key] }
                };
                assert_eq!(own["allowPrivilegeEscalation"], false, "{at}");
                assert_eq!(own["capabilities"]["drop"], json!(["ALL"]), "{at}");
                assert!(own["capabilities"]["add"].is_null(), "{at}");
                assert_eq!(either("runAsNonRoot"), true, "{at}");
                assert_ne!(either("runAsUser"), 0, "{at}");
                assert_eq!(either("seccompProfile")["type"], "RuntimeDefault", "{at}");
                let ports = array(&container["ports"]);
                assert!(ports.iter().all(|it| it["hostPort"].is_null()), "{at}");
            }
            seen += 1;
        }
    });
    assert!(seen >= 22, "{seen}");
}

/// The nodes' namespaces need one label, the controller's can have another. `kube-system` holds
/// pods of others, which `restricted` would refuse.
#[test]
fn helm_notes_print_pod_security_labels() {
    let Some(helm) = helm() else { return };
    let labels = |namespace: &str, values: &str| -> BTreeSet<String> {
        let mut install = Command::new(&helm);
        install
            .args(["install", "release", "deploy/install/chart", "--dry-run=client"])
            .args(["--namespace", namespace, "--values", REGISTRY, "--set", values])
            .current_dir(root());
        let notes = output(&mut install).expect(values);
        let notes = notes.split_once("NOTES:").expect("notes").1;
        let commands = notes
            .lines()
            .filter_map(|line| line.trim().strip_prefix("kubectl label --overwrite namespace "));
        commands.map(|it| it.replace(" pod-security.kubernetes.io/enforce=", " ")).collect()
    };
    let one = "node.logLevel=2";
    let apart = "node.namespaceOverride=nodes";
    assert_eq!(labels("ebs", one), BTreeSet::from(["ebs privileged".to_owned()]));
    let both = ["ebs restricted", "nodes privileged"].map(str::to_owned);
    assert_eq!(labels("ebs", apart), BTreeSet::from(both));
    let nodes = BTreeSet::from(["nodes privileged".to_owned()]);
    assert_eq!(labels("kube-system", apart), nodes);
    assert_eq!(labels("ebs", "nodeComponentOnly=true,node.namespaceOverride=nodes"), nodes);
}

/// The exceptions name the node's pods and not the controller's, and the same policies; the one for
/// ClusterPolicies has each rule also by the name that Kyverno gives to it for a DaemonSet.
#[test]
fn kyverno_exceptions_cover_node_pods_only() {
    let folder = "deploy/install/manifests/kyverno";
    let exception = yaml(&format!("{folder}/kyverno-exception.yaml"));
    let resources = &exception["spec"]["match"]["any"][0]["resources"];
    assert_eq!(resources["names"], json!(["ebs-csi-node", "ebs-csi-node-*"]));
    assert_eq!(resources["kinds"], json!(["Pod", "DaemonSet"]));
    let node = crate::objects(&read("deploy/install/manifests/node.yaml"));
    let node = find(&node, "DaemonSet", "ebs-csi-node").expect("a DaemonSet");
    assert_eq!(resources["namespaces"], json!([node["metadata"]["namespace"]]));
    for policy in array(&exception["spec"]["exceptions"]) {
        let rules = texts(array(&policy["ruleNames"]).iter());
        let (own, pods): (BTreeSet<&str>, BTreeSet<&str>) =
            rules.iter().map(String::as_str).partition(|it| it.starts_with("autogen-"));
        let own: BTreeSet<&str> = own.iter().map(|it| &it["autogen-".len()..]).collect();
        assert_eq!(own, pods, "{policy}");
        assert!(!pods.is_empty(), "{policy}");
    }

    let validating = yaml(&format!("{folder}/kyverno-validating-exception.yaml"));
    let policies = array(&validating["spec"]["policyRefs"]);
    assert!(policies.iter().all(|it| it["kind"] == "ValidatingPolicy"), "{policies:?}");
    let exempted = array(&exception["spec"]["exceptions"]).iter().map(|it| &it["policyName"]);
    assert_eq!(texts(policies.iter().map(|it| &it["name"])), texts(exempted));
    let conditions = array(&validating["spec"]["matchConditions"]);
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    let expected = "object.kind in ['Pod', 'DaemonSet'] \
                    && object.metadata.namespace == 'kube-system' \
                    && (object.metadata.name == 'ebs-csi-node' \
                    || object.metadata.name.startsWith('ebs-csi-node-'))";
    assert_eq!(conditions[0]["expression"], expected);
}

#[test]
fn pod_patches_are_granted_only_under_policy() {
    let Some(helm) = helm() else { return };
    let name = "ebs-csi-node-facts";
    let off = "onboarding.nodeFacts.labels=false,onboarding.drain=false";
    for (values, version, granted, flags) in [
        ("", "1.36.0", true, "on on"),
        ("", "1.30.0", true, "on on"),
        ("", "1.29.0", false, "off off"),
        ("admissionPolicies.enabled=false", "1.36.0", false, "off off"),
        ("onboarding.enabled=false", "1.36.0", false, "off off"),
        (off, "1.36.0", false, "off off"),
        ("onboarding.drain=false", "1.36.0", true, "on off"),
        ("onboarding.nodeFacts.labels=false", "1.36.0", true, "off on"),
    ] {
        let objects = render(&helm, &["--set", values, "--kube-version", version]);
        for kind in ["ValidatingAdmissionPolicy", "Role", "RoleBinding"] {
            let found = find(&objects, kind, name).is_some();
            assert_eq!(found, granted, "{values} {version}: {kind}");
        }
        let patches = objects.iter().filter(|object| {
            let mut rules = array(&object["rules"]).iter();
            rules.any(|rule| {
                rule["resources"] == json!(["pods"]) && rule.to_string().contains("patch")
            })
        });
        assert_eq!(patches.count(), usize::from(granted), "{values} {version}");
        let words = arguments(&objects, "ebs-csi-controller", "node-lifecycle");
        let flag = |flag| words.iter().find_map(|it| it.strip_prefix(flag)).expect("it");
        let both = format!("{} {}", flag("--node-facts="), flag("--drain-annotation="));
        assert_eq!(both, flags, "{values} {version}");
    }
}

#[test]
fn each_node_namespace_has_its_pod_role() {
    let Some(helm) = helm() else { return };
    let values = "additionalDaemonSets.b.namespaceOverride=other,additionalDaemonSets.c.logLevel=3";
    let objects = render(&helm, &["--set", values]);
    let named = |kind: &str| -> BTreeSet<String> {
        let of = objects.iter().filter(|object| {
            object["kind"] == kind && object["metadata"]["name"] == "ebs-csi-node-facts"
        });
        of.map(|object| object["metadata"]["namespace"].to_string()).collect()
    };
    let both = BTreeSet::from(["\"kube-system\"", "\"other\""].map(str::to_owned));
    assert_eq!(named("Role"), both);
    assert_eq!(named("RoleBinding"), both);
    let policy = find(&objects, "ValidatingAdmissionPolicy", "ebs-csi-node-facts");
    let policy = policy.expect("the policy").to_string();
    for words in [
        "request.namespace in ['kube-system','other']",
        "o.name in ['ebs-csi-node','ebs-csi-node-b','ebs-csi-node-c']",
    ] {
        assert!(policy.contains(words), "{words}: {policy}");
    }
    assert!(
        text(&helm, &["--set", values])
            .expect("it")
            .contains("--node-namespaces=kube-system,other")
    );
    for (name, _) in pods(&objects) {
        let on_node = name.starts_with("ebs-csi-node");
        let set = find(&objects, "DaemonSet", name)
            .map(|it| &it["spec"]["template"]["metadata"]["labels"]);
        let label = set.map(|labels| labels["ebs.csi.aws.com/component"] == "node-agent");
        assert_eq!(label.unwrap_or_default(), on_node, "{name}");
    }
}

/// Below Kubernetes 1.35, a node waits longer only where node-lifecycle writes facts.
#[test]
fn facts_timeout_is_short_without_node_facts() {
    let Some(helm) = helm() else { return };
    for (values, version, seconds) in [
        ("", "1.36.0", 10),
        ("", "1.34.0", 10),
        ("onboarding.nodeFacts.labels=false", "1.36.0", 10),
        ("onboarding.nodeFacts.labels=false", "1.34.0", 2),
        ("admissionPolicies.enabled=false", "1.34.0", 2),
        ("node.agent.factsTimeout=33", "1.34.0", 33),
    ] {
        let rendered = text(&helm, &["--set", values, "--kube-version", version]);
        let flag = format!("--node-facts-timeout={seconds}\n");
        assert!(rendered.expect(values).contains(&flag), "{values} {version}");
    }
}
