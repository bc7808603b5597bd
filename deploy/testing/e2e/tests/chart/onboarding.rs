//! The rights and flags by which node-lifecycle writes facts for the nodes.

use std::collections::BTreeSet;

use serde_json::json;

use crate::{arguments, array, find, helm, pods, render, text};

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
