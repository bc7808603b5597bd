//! Keys that are no values of the chart: each is refused, and the nearest value is named.

use std::fmt::Write as _;
use std::process::Command;

use ebs_csi_e2e::program::output;
use ebs_csi_e2e::repository::{assert_generated, entries, read, root};
use serde_json::Value;

use crate::{helm, text};

/// Returns the names of the schema's keys, without anything else.
fn names(node: &Value) -> Value {
    let mut all = serde_json::Map::new();
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        all.insert(name.clone(), names(child));
    }
    Value::Object(all)
}

/// Writes one name a line, each level one blank deeper.
fn written(node: &Value, level: usize, out: &mut String) {
    let all: Vec<_> = node.as_object().into_iter().flatten().collect();
    if all.is_empty() {
        out.push_str("{}");
        return;
    }
    out.push_str("{\n");
    for (at, (name, child)) in all.iter().enumerate() {
        let _ = write!(out, "{:level$} \"{name}\": ", "");
        written(child, level + 1, out);
        out.push_str(if at + 1 < all.len() { ",\n" } else { "\n" });
    }
    let _ = write!(out, "{:level$}}}", "");
}

#[test]
fn known_keys_match_values_schema() {
    let schema: Value =
        serde_json::from_str(&read("deploy/install/chart/values.schema.json")).expect("JSON");
    let mut made = String::new();
    written(&names(&schema), 0, &mut made);
    made.push('\n');
    assert_generated("deploy/install/chart/keys.json", &made, "chart");
}

#[test]
fn mistyped_value_names_nearest_value() {
    let Some(helm) = helm() else { return };
    for (typed, meant) in [
        ("node.tolerationss", "node.tolerations"),
        ("node.hostnetwork", "node.hostNetwork"),
        ("node.hlper", "node.helper"),
        ("node.helper.untrustedImage", "node.helper.untrustedImages"),
        ("controller.replicas", "controller.replicaCount"),
        // A value that stands elsewhere.
        ("replicaCount", "controller.replicaCount"),
        ("volumeAttachLimit", "node.volumeAttachLimit"),
        ("networkPolicies", "networkPolicy"),
        ("sidecars.provisoner", "sidecars.provisioner"),
        ("additionalDaemonSets.x.volumeAtachLimit", "additionalDaemonSets.x.volumeAttachLimit"),
        ("additionalDaemonSets.x.helper.grce", "additionalDaemonSets.x.helper.grace"),
    ] {
        let error = text(&helm, &["--set", &format!("{typed}=1")]).expect_err(typed);
        let expected = format!("{typed} is not a value of this chart; the nearest is {meant}. ");
        assert!(error.contains(&expected), "{error}");
    }
    // Nothing is near: no guess.
    let error = text(&helm, &["--set", "zzz=1"]).expect_err("zzz");
    let expected = "zzz is not a value of this chart. deploy/docs/configuration.md";
    assert!(error.contains(expected), "{error}");
}

/// The keys that charts of the Go driver before 2.0 had and 2.64 has not, with what the chart says.
const FORMER: &str = "
affinity | the nearest is controller.affinity.
controller.containerResources | controller.resources and sidecars.NAME.resources
controller.extraVars | controller.env
enableVolumeResizing | remove it
enableVolumeScheduling | remove it
enableVolumeSnapshot | sidecars.snapshotter.forceEnable
extraCreateMetadata | the nearest is controller.extraCreateMetadata.
extraVolumeTags | the nearest is controller.extraVolumeTags.
k8sTagClusterId | the nearest is controller.k8sTagClusterId.
node.containerResources | the nearest is node.resources.
nodeSelector | controller.nodeSelector and node.nodeSelector
podAnnotations | controller.podAnnotations and node.podAnnotations
priorityClassName | the nearest is controller.priorityClassName.
region | the nearest is controller.region.
replicaCount | the nearest is controller.replicaCount.
resources | controller.resources and node.resources
serviceAccount | controller.serviceAccount and node.serviceAccount
sidecars.attacherImage | sidecars.attacher.image
sidecars.livenessProbeImage | remove it
sidecars.nodeDriverRegistrarImage | remove it
sidecars.provisionerImage | sidecars.provisioner.image
sidecars.resizerImage | sidecars.resizer.image
sidecars.snapshotterImage | sidecars.snapshotter.image
snapshotController | remove it
tolerateAllTaints | the nearest is node.tolerateAllTaints.
tolerations | controller.tolerations and node.tolerations
topologySpreadConstraints | the nearest is controller.topologySpreadConstraints.
volumeAttachLimit | the nearest is node.volumeAttachLimit.
";

#[test]
fn former_keys_of_go_driver_name_present_ones() {
    let Some(helm) = helm() else { return };
    for line in FORMER.lines().skip(1) {
        let (key, words) = line.split_once(" | ").expect(line);
        let error = text(&helm, &["--set", &format!("{key}.x=1")]).expect_err(key);
        let named = error.contains(&format!("{key} is ")) && error.contains(words);
        assert!(named, "{key}: no {words:?} in: {error}");
    }
}

/// `helm upgrade --reuse-values` puts the values of the Go driver's release in the place of this
/// chart's defaults.
#[test]
fn reused_go_driver_values_are_refused_in_words() {
    let Some(helm) = helm() else { return };
    let copy = tempfile::tempdir().expect("a directory");
    for (name, path) in entries("deploy/install/chart") {
        let path = match name.as_str() {
            "values.yaml" => root().join("deploy/install/chart/ci/go-driver.yaml"),
            _ => path,
        };
        let path = path.canonicalize().expect("a file of the chart");
        std::os::unix::fs::symlink(path, copy.path().join(name)).expect("a link");
    }
    for more in ["image.tag=v1", "image.containerRegistry=registry.example.com"] {
        let template = ["template", "release", "--set", more];
        let error = output(Command::new(&helm).args(template).arg(copy.path())).expect_err(more);
        for words in [" is missing: ", "--reuse-values", "--reset-then-reuse-values"] {
            assert!(error.contains(words), "{more}: no {words:?} in: {error}");
        }
    }
}

/// A parent chart hands its `global` to every subchart, with keys that a subchart cannot know.
#[test]
fn parent_chart_may_pass_any_global() {
    let Some(helm) = helm() else { return };
    let parent = tempfile::tempdir().expect("a directory");
    let charts = parent.path().join("charts");
    std::fs::create_dir(&charts).expect("a directory");
    let chart = root().join("deploy/install/chart");
    let chart = chart.canonicalize().expect("the chart");
    std::os::unix::fs::symlink(chart, charts.join("aws-ebs-csi-driver")).expect("a link");
    let dependency = "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies:\n  \
                      - {name: aws-ebs-csi-driver, version: 0.x.x, condition: aws-ebs-csi-driver.enabled}\n";
    std::fs::write(parent.path().join("Chart.yaml"), dependency).expect("Chart.yaml");
    let values = "global: {of: {the: parent}}\naws-ebs-csi-driver:\n  enabled: true\n  \
                  image: {containerRegistry: registry.example.com}\n";
    std::fs::write(parent.path().join("values.yaml"), values).expect("values.yaml");
    let rendered = |more: &[&str]| {
        let template = ["template", "release"];
        output(Command::new(&helm).args(template).arg(parent.path()).args(more))
    };
    let made = rendered(&[]).expect("a parent's global");
    assert!(made.contains("name: ebs-csi-controller\n"), "{made}");
    let off = rendered(&["--set", "aws-ebs-csi-driver.enabled=false"]).expect("switched off");
    assert!(!off.contains("ebs-csi-controller"), "{off}");
    let error = rendered(&["--set", "aws-ebs-csi-driver.nod.logLevel=1"]).expect_err("nod");
    assert!(error.contains("the nearest is node. "), "{error}");
}
