//! An upgrade in place of the Go driver's chart: what this chart renders over its objects.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::configuration_page::{default_of, schema};
use crate::{
    KUBERNETES, MONITORS, SNAPSHOTS, array, container, containers, each, helm, pods, read, render,
    yaml,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Objects {
    object: Vec<Object>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(default)]
    namespaced: bool,
    /// JSON pointers with the value that must stay.
    #[serde(default)]
    fixed: BTreeMap<String, Value>,
    /// Why the chart does not have the object.
    gone: Option<String>,
}

pub(crate) fn go_driver() -> Vec<Object> {
    let text = read("deploy/testing/e2e/tests/chart/go_driver_objects.toml");
    let all: Objects = toml::from_str(&text).expect("the Go driver's objects");
    all.object
}

fn is(object: &Object, rendered: &Value) -> bool {
    rendered["kind"] == object.kind && rendered["metadata"]["name"] == object.name
}

fn assert_fixed(at: &str, object: &Object, rendered: &Value, but: &[&str]) {
    let fixed = object.fixed.iter();
    for (pointer, value) in fixed.filter(|(pointer, _)| !but.contains(&pointer.as_str())) {
        let now = rendered.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(now, value, "{at}: {} {} {pointer}", object.kind, object.name);
    }
}

/// The values that those objects were rendered with; some have no effect here.
const VALUES: &str = "controller.enableMetrics=true,node.enableMetrics=true,\
                      controller.volumeModificationFeature.enabled=true,\
                      sidecars.metadataLabeler.enabled=true,defaultStorageClass.enabled=true,\
                      storageClasses[0].name=sc,volumeSnapshotClasses[0].name=vsc,\
                      volumeSnapshotClasses[0].deletionPolicy=Delete,\
                      additionalDaemonSets.x.volumeAttachLimit=3";

#[test]
fn go_driver_objects_keep_names_and_immutable_fields() {
    let Some(helm) = helm() else { return };
    let mut arguments = vec!["--set", VALUES, "--kube-version", KUBERNETES[1]];
    arguments.extend(SNAPSHOTS.into_iter().chain(MONITORS));
    let rendered = render(&helm, &arguments);
    let mut kept = 0;
    for object in go_driver() {
        let at = format!("{} {}", object.kind, object.name);
        let found = rendered.iter().find(|it| is(&object, it));
        let Some(found) = found else {
            let why = object.gone.unwrap_or_default();
            assert!(!why.is_empty(), "{at} is not rendered");
            continue;
        };
        assert_eq!(object.gone, None, "{at} is rendered");
        let namespace = found["metadata"]["namespace"].as_str();
        let expected = object.namespaced.then_some("kube-system");
        assert_eq!(namespace, expected, "{at}");
        assert_fixed("the Go driver's values", &object, found, &[]);
        kept += 1;
    }
    assert!(kept >= 30, "{kept}");
}

/// Also with other values nothing of the Go driver's is changed that must stay, unless the value
/// requests it.
#[test]
fn no_set_changes_immutable_go_driver_fields() {
    let Some(helm) = helm() else { return };
    let objects = go_driver();
    let exempt = ["/spec/nodeAllocatableUpdatePeriodSeconds"];
    let mut seen = 0;
    each(&helm, |set, rendered| {
        for object in &objects {
            for found in rendered.iter().filter(|it| is(object, it)) {
                assert_fixed(set, object, found, &exempt);
                seen += 1;
            }
        }
    });
    assert!(seen >= 300, "{seen}");
}

/// The stock sidecars name their Leases by the driver, in the namespace of their pod: a sidecar of
/// either driver waits for the other's.
#[test]
fn sidecar_leases_keep_their_names_for_upgrades() {
    let Some(helm) = helm() else { return };
    each(&helm, |set, objects| {
        for (_, pod) in pods(objects) {
            for (name, container) in containers(pod) {
                let words = array(&container["args"]).iter().filter_map(Value::as_str);
                for word in words {
                    let moved = word.starts_with("--leader-election-namespace");
                    assert!(!moved, "{set}: {name}: {word}");
                }
            }
        }
    });
}

/// volume-modifier-for-k8s ends at once without the namespace of its pod.
#[test]
fn volume_modifier_has_variables_of_go_driver_chart() {
    let Some(helm) = helm() else { return };
    let values = "controller.volumeModificationFeature.enabled=true,\
                  sidecars.volumemodifier.env[0].name=MORE,sidecars.volumemodifier.env[0].value=x";
    let objects = render(&helm, &["--set", values]);
    let it = container(&objects, "ebs-csi-controller", "volumemodifier");
    for (name, field) in [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")] {
        let variable = array(&it["env"]).iter().find(|it| it["name"] == name).expect(name);
        assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], field);
    }
    assert!(array(&it["env"]).iter().any(|it| it["name"] == "MORE"));
}

/// `deploy/install/chart/ci/switches.yaml`, whose pods the rig starts, has every switch on.
#[test]
fn switches_set_turns_every_switch_on() {
    let set = yaml("deploy/install/chart/ci/switches.yaml");
    let defaults = yaml("deploy/install/chart/values.yaml");
    let mut switches: Vec<_> =
        schema().into_keys().filter(|path| path.ends_with(".enabled")).collect();
    switches.push("sidecars.metadataLabeler.enabled".to_owned());
    assert!(switches.len() >= 15, "{switches:?}");
    for path in switches {
        let value = default_of(&set, &path).or_else(|| default_of(&defaults, &path));
        assert_eq!(value, Some(Value::Bool(true)), "{path}");
    }
}
