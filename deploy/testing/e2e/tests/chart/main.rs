//! The Helm chart: what it renders from many sets of values, what it refuses, and how it documents
//! itself.
//!
//! `UPDATE_GENERATED=1 cargo test --workspace --test chart` writes
//! `deploy/docs/configuration.md`, `deploy/install/chart/keys.json` and `chart/rendered`.

mod artifact;
mod cluster;
mod configuration_page;
mod flags;
mod go_driver;
mod keys;
mod manifests;
mod monitoring;
mod network;
mod pages;
mod privileges;
mod rendered_sets;
mod tolerations;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ebs_csi_e2e::array;
use ebs_csi_e2e::program::output;
use ebs_csi_e2e::repository::{self, entries, read, root, yaml};
use serde_json::{Value, json};

fn helm() -> Option<PathBuf> {
    repository::prepared("helm")
}

const SNAPSHOTS: [&str; 2] = ["--api-versions", "snapshot.storage.k8s.io/v1"];
const MONITORS: [&str; 2] = ["--api-versions", "monitoring.coreos.com/v1"];

/// The values without which the chart refuses its own; other values override them.
const REGISTRY: &str = "deploy/testing/e2e/tests/chart/registry.yaml";

/// A Kubernetes version without any of the features that the chart checks for, and one with all of
/// them.
const KUBERNETES: [&str; 2] = ["1.29.0", "1.36.0"];

/// Returns Helm's output, or its error message.
fn text(helm: &Path, arguments: &[&str]) -> Result<String, String> {
    text_of(helm, "release", arguments)
}

fn text_of(helm: &Path, release: &str, arguments: &[&str]) -> Result<String, String> {
    let template = ["template", release, "deploy/install/chart", "--values", REGISTRY];
    let own = ["--namespace", "kube-system"];
    output(Command::new(helm).args(template).args(own).args(arguments).current_dir(root()))
}

fn objects(text: &str) -> Vec<Value> {
    text.split("\n---\n")
        .map(|document| document.trim_start_matches("---\n"))
        .filter(|document| {
            document.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'))
        })
        // Helm's own parser takes the last of two equal keys; this parser refuses them.
        .map(|document| serde_saphyr::from_str(document).expect(document))
        .collect()
}

fn render(helm: &Path, arguments: &[&str]) -> Vec<Value> {
    objects(&text(helm, arguments).unwrap_or_else(|why| panic!("{arguments:?}: {why}")))
}

/// Returns the sets of values in `deploy/install/chart/ci`, the values of the rig with real
/// kubelets, and an empty set.
fn sets() -> Vec<Vec<String>> {
    let mut paths = vec![root().join("deploy/testing/clusters/values.yaml")];
    paths.extend(entries("deploy/install/chart/ci").into_iter().map(|(_, path)| path));
    assert!(paths.len() >= 12, "{}", paths.len());
    let with = |path: PathBuf| vec!["--values".to_owned(), path.display().to_string()];
    let mut all: Vec<_> = paths.into_iter().map(with).collect();
    all.push(Vec::new());
    all
}

type Rendered = (String, Vec<Value>);

/// Passes each rendered set to `judge`: every set on old and on new Kubernetes, the latter with
/// snapshots and monitors.
fn each(helm: &Path, mut judge: impl FnMut(&str, &[Value])) {
    static ALL: OnceLock<Vec<Rendered>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all = Vec::new();
        for set in sets() {
            let definitions = [SNAPSHOTS, MONITORS].concat();
            for (version, definitions) in KUBERNETES.into_iter().zip([&[][..], &definitions]) {
                let mut arguments: Vec<&str> = set.iter().map(String::as_str).collect();
                arguments.extend(["--kube-version", version]);
                arguments.extend(definitions);
                all.push((format!("{arguments:?}"), render(helm, &arguments)));
            }
        }
        all
    });
    for (arguments, objects) in all {
        judge(arguments, objects);
    }
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// Returns the pod templates: the name of the workload object, and the pod's spec.
fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    let named = |object: &'static str| move |it: &&Value| it["kind"] == object;
    ["Deployment", "DaemonSet", "Job"]
        .into_iter()
        .flat_map(|kind| objects.iter().filter(named(kind)))
        .map(|object| {
            let name = object["metadata"]["name"].as_str().expect("a name");
            (name, &object["spec"]["template"]["spec"])
        })
        .collect()
}

/// Returns the containers of a pod that this chart defines, without a user's own init containers.
fn containers(pod: &Value) -> Vec<(&str, &Value)> {
    array(&pod["initContainers"])
        .iter()
        .filter(|it| it["name"] == "mount-helper" || it["name"] == "give-directories")
        .chain(array(&pod["containers"]))
        .map(|it| (it["name"].as_str().expect("a name"), it))
        .collect()
}

/// Returns a container of the pods of this workload object.
fn container<'a>(objects: &'a [Value], name: &str, container: &str) -> &'a Value {
    let (_, pod) = pods(objects).into_iter().find(|(it, _)| *it == name).expect("a pod");
    containers(pod).into_iter().find(|(it, _)| *it == container).expect("it").1
}

fn arguments<'a>(objects: &'a [Value], name: &str, of: &str) -> Vec<&'a str> {
    let words = array(&container(objects, name, of)["args"]).iter();
    words.filter_map(Value::as_str).collect()
}

#[test]
fn no_set_of_values_mixes_trust_levels() {
    let Some(helm) = helm() else { return };
    each(&helm, |set, objects| {
        for (name, pod) in pods(objects) {
            let on_node = name != "ebs-csi-controller";
            // The one container of this pod reads the cluster.
            let reads = name == "ebs-csi-preflight-cluster";
            assert_eq!(pod["automountServiceAccountToken"] != false, reads, "{set}: {name}");
            assert!(pod["hostPID"].is_null(), "{set}: {name}");
            for (container, it) in containers(pod) {
                let at = format!("{set}: {name}: {container}");
                let context = &it["securityContext"];
                let helper = container == "mount-helper";
                assert_eq!(context["privileged"] == true, helper, "{at}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{at}");
                if !helper {
                    assert_eq!(context["allowPrivilegeEscalation"], false, "{at}");
                    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{at}");
                }
                let adds = array(&context["capabilities"]["add"]);
                let as_root = context["runAsUser"] == 0;
                let expected = match container {
                    "ebs-plugin" if on_node && as_root => json!(["SETUID", "SETGID", "SETPCAP"]),
                    "give-directories" => json!(["CHOWN"]),
                    _ => json!([]),
                };
                assert_eq!(json!(adds), expected, "{at}");
                // No container has both the Kubernetes token and a possible source of AWS keys.
                let token =
                    array(&it["volumeMounts"]).iter().any(|mount| mount["name"] == "kubernetes");
                assert_eq!(token, !on_node && container != "ebs-plugin", "{at}");
                let controller = !on_node && container == "ebs-plugin";
                let secret = it.to_string().contains("ecretKeyRef") || !it["envFrom"].is_null();
                assert!(controller || !secret, "{at}: only the controller has keys");
            }
        }
        assert!(!pods(objects).is_empty(), "{set}");
    });
}

/// Only `nameOverride` changes a selector label; Kubernetes refuses to change selectors and role
/// references in place.
#[test]
fn selectors_and_role_refs_stay_fixed_for_upgrades() {
    let Some(helm) = helm() else { return };
    let roles = BTreeMap::from([
        ("ebs-csi-attacher-binding", "ebs-external-attacher-role"),
        ("ebs-csi-provisioner-binding", "ebs-external-provisioner-role"),
        ("ebs-csi-resizer-binding", "ebs-external-resizer-role"),
        ("ebs-csi-snapshotter-binding", "ebs-external-snapshotter-role"),
        ("ebs-csi-leases-rolebinding", "ebs-csi-leases-role"),
    ]);
    each(&helm, |set, objects| {
        for object in objects {
            let name = object["metadata"]["name"].as_str().expect("a name");
            let kind = object["kind"].as_str().expect("a kind");
            if ["Deployment", "DaemonSet"].contains(&kind) {
                let labels = json!({
                    "app": name,
                    "app.kubernetes.io/name": "aws-ebs-csi-driver",
                    "app.kubernetes.io/instance": "release",
                });
                assert_eq!(object["spec"]["selector"]["matchLabels"], labels, "{set}");
                let of_pods = &object["spec"]["template"]["metadata"]["labels"];
                for (label, value) in labels.as_object().into_iter().flatten() {
                    assert_eq!(of_pods[label], *value, "{set}: {name}");
                }
            }
            if let Some(role) = roles.get(name) {
                assert_eq!(object["roleRef"]["name"], *role, "{set}");
            }
            if kind == "CSIDriver" {
                assert_eq!(name, "ebs.csi.aws.com");
                assert_eq!(object["spec"]["attachRequired"], true, "{set}");
            }
        }
    });
    let names = render(&helm, &["--set", "nameOverride=other"]);
    let deployment = find(&names, "Deployment", "ebs-csi-controller").expect("a Deployment");
    let labels = &deployment["spec"]["selector"]["matchLabels"];
    assert_eq!(labels["app.kubernetes.io/name"], "other");
}

/// Helm's own checks, which also read the values' schema and the templates' files.
#[test]
fn helm_lint_passes_for_each_set() {
    let Some(helm) = helm() else { return };
    for set in sets() {
        let lint = ["lint", "--strict", "--quiet", "deploy/install/chart", "--values", REGISTRY];
        let linted = output(Command::new(&helm).args(lint).args(&set).current_dir(root()));
        linted.unwrap_or_else(|why| panic!("{set:?}: {why}"));
    }
}

#[test]
fn snapshotter_needs_snapshot_definitions() {
    let Some(helm) = helm() else { return };
    let values = ["--values", "deploy/install/chart/ci/no-snapshots.yaml"];
    let rendered = |definitions: &[&str]| {
        let arguments = [&values[..], definitions].concat();
        text(&helm, &arguments).expect("rendered")
    };
    let without = rendered(&[]);
    let objects = objects(&without);
    let (_, pod) = pods(&objects)[0];
    let names: Vec<&str> = containers(pod).iter().map(|(name, _)| *name).collect();
    assert!(!names.contains(&"csi-snapshotter"), "{names:?}");
    let is_class = |it: &Value| it["kind"] == "VolumeSnapshotClass";
    assert!(!objects.iter().any(is_class));
    assert!(without.contains("# Noted: volumeSnapshotClasses"));
    let with = rendered(&SNAPSHOTS);
    assert!(with.contains("name: csi-snapshotter"));
    assert!(with.contains("kind: VolumeSnapshotClass"));
}

/// Both of EKS's ways to an AWS role are kept from the containers that have the Kubernetes token.
#[test]
fn aws_identity_skips_containers_with_kubernetes_token() {
    let Some(helm) = helm() else { return };
    each(&helm, |set, objects| {
        let Some(deployment) = find(objects, "Deployment", "ebs-csi-controller") else { return };
        let template = &deployment["spec"]["template"];
        let skipped = template["metadata"]["annotations"]["eks.amazonaws.com/skip-containers"]
            .as_str()
            .expect("the annotation");
        let skipped: Vec<&str> = skipped.split(',').collect();
        for (name, _) in containers(&template["spec"]) {
            assert_eq!(skipped.contains(&name), name != "ebs-plugin", "{set}: {name}");
        }
    });
}

#[test]
fn no_object_is_rendered_twice() {
    let Some(helm) = helm() else { return };
    each(&helm, |set, objects| {
        let mut seen = BTreeSet::new();
        for object in objects {
            let key = rendered_sets::identity(object);
            assert!(seen.insert(key.clone()), "{set}: {key}");
        }
    });
}

/// A second release must not own the cluster-wide objects of the release with the controller.
#[test]
fn node_only_release_renders_only_own_namespaced_objects() {
    let Some(helm) = helm() else { return };
    let objects = render(&helm, &["--values", "deploy/install/chart/ci/node-only.yaml"]);
    let kinds: BTreeSet<_> = objects.iter().filter_map(|it| it["kind"].as_str()).collect();
    assert_eq!(
        kinds,
        BTreeSet::from(["DaemonSet", "Job", "NetworkPolicy", "Service", "ServiceAccount"])
    );
    for object in &objects {
        assert_eq!(object["metadata"]["namespace"], "kube-public", "{object}");
    }
}

#[test]
fn node_shutdown_steps_fit_in_termination_grace_period() {
    let Some(helm) = helm() else { return };
    each(&helm, |set, objects| {
        for (name, pod) in pods(objects) {
            if !name.starts_with("ebs-csi-node") {
                continue;
            }
            let seconds = |container: &str, flag: &str| {
                let all = containers(pod);
                let it = all.iter().find(|(it, _)| *it == container)?.1;
                let hook = array(&it["lifecycle"]["preStop"]["exec"]["command"]);
                let mut words = array(&it["args"]).iter().chain(hook);
                words.find_map(|word| word.as_str()?.strip_prefix(flag)?.parse::<u64>().ok())
            };
            let hook = seconds("ebs-plugin", "--timeout=").expect("a hook");
            let agent = seconds("ebs-plugin", "--grace-period=").expect("the agent");
            let helper = seconds("mount-helper", "--grace=").unwrap_or(0);
            let whole = pod["terminationGracePeriodSeconds"].as_u64().expect("all");
            assert!(hook + agent + helper < whole, "{set}: {name}: {hook} {agent} {helper}");
            if let Some(last) = array(&pod["initContainers"]).last() {
                assert_eq!(last["name"], "mount-helper", "{set}: {name}");
                assert_eq!(last["restartPolicy"], "Always", "{set}: {name}: it ends last");
            }
        }
    });
}

/// A user's API rate also drops the chart's burst and worker-threads flags, which depend on it.
#[test]
fn additional_args_replace_chart_arguments() {
    let Some(helm) = helm() else { return };
    let set = "sidecars.provisioner.additionalArgs={--timeout=9s,--kube-api-qps=1}";
    let objects = render(&helm, &["--set", set]);
    let words = arguments(&objects, "ebs-csi-controller", "csi-provisioner");
    let flags = |name: &str| words.iter().filter(|it| it.starts_with(name)).count();
    assert_eq!((flags("--timeout="), flags("--kube-api-qps=")), (1, 1));
    assert!(words.contains(&"--timeout=9s") && words.contains(&"--kube-api-qps=1"));
    // Setting the rate also removes the burst and the number of workers.
    assert_eq!((flags("--kube-api-burst"), flags("--worker-threads")), (0, 0));
}
