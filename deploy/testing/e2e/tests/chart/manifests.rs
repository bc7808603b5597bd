//! The manifests: that the chart renders them, and what kustomize makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use ebs_csi_e2e::program::output;
use ebs_csi_e2e::repository::{beneath, entries, prepared, root};
use serde_json::Value;

use crate::rendered_sets::identity;
use crate::{arguments, helm, objects};

const FOLDER: &str = "deploy/install/manifests";

/// Returns the YAML files beneath a folder with their paths in it.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let named = |path: PathBuf| {
        let name = path.strip_prefix(folder).expect("a path beneath").display().to_string();
        (name, std::fs::read_to_string(&path).expect("a file"))
    };
    beneath(folder, "yaml").into_iter().map(named).collect()
}

#[test]
fn committed_manifests_match_chart_output() {
    if helm().is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let script = root().join("deploy/install/chart/render");
    output(Command::new(script).arg(directory.path())).expect("rendered");
    let committed = files(&root().join(FOLDER));
    let rendered = files(directory.path());
    for (name, made) in &rendered {
        assert!(
            committed.get(name) == Some(made),
            "{FOLDER}/{name} is stale: ./deploy/install/chart/render writes it"
        );
    }
    assert!(rendered.len() >= 13, "{}", rendered.len());
}

#[test]
fn chart_copies_of_alerts_are_current() {
    let mut carried = 0;
    for (name, source) in entries(FOLDER) {
        let Some(of) = name.strip_suffix("-alerts.yaml") else { continue };
        let copy = root().join(format!("deploy/install/chart/alerts/{of}.yaml"));
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            text(source) == text(copy),
            "alerts of {of} are stale: ./deploy/install/chart/render"
        );
        carried += 1;
    }
    assert!(carried >= 5, "{carried}");
}

/// kubectl, in which kustomize is.
pub(crate) fn kubectl() -> Option<PathBuf> {
    prepared("../kubernetes/kubectl")
}

/// Returns what `kubectl apply -k` would apply: the base with these components, and more lines of
/// the overlay.
fn applied(kubectl: &Path, components: &[&str], more: &str) -> Vec<Value> {
    let place = tempfile::tempdir().expect("a directory");
    for (name, text) in files(&root().join(FOLDER)) {
        let path = place.path().join("manifests").join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a copy");
    }
    let mut overlay = String::from("resources: [manifests]\n");
    if !components.is_empty() {
        overlay += "components:\n";
    }
    for component in components {
        overlay += &format!("  - manifests/{component}\n");
    }
    std::fs::write(place.path().join("kustomization.yaml"), overlay + more).expect("an overlay");
    let made = output(Command::new(kubectl).arg("kustomize").arg(place.path()));
    objects(&made.unwrap_or_else(|why| panic!("{components:?}: {why}")))
}

fn identities(all: &[Value]) -> BTreeSet<String> {
    all.iter().map(identity).collect()
}

/// The manifests of each folder; the base's is "".
fn by_folder() -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in files(&root().join(FOLDER)) {
        // Files for Prometheus and promtool, which Kubernetes does not know; the rights of the
        // preflight, which comes before.
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", &name));
        let others = ["kustomization.yaml", "preflight-rbac.yaml"];
        if others.contains(&file) || folder == "alert-tests" || file.ends_with("-alerts.yaml") {
            continue;
        }
        all.entry(folder.to_owned()).or_default().extend(identities(&objects(&text)));
    }
    all
}

#[test]
fn kustomize_base_has_no_alerts_or_failover_rights() {
    let Some(kubectl) = kubectl() else { return };
    let base = applied(&kubectl, &[], "");
    assert_eq!(identities(&base), by_folder()[""]);
    for object in &base {
        let kind = object["kind"].as_str().expect("a kind");
        assert_ne!(kind, "PrometheusRule");
        assert!(!identity(object).contains("failover"), "{}", identity(object));
        // What the account of the controller's pod may do to pods and attachments.
        for rule in object["rules"].as_array().into_iter().flatten() {
            let has = |key: &str, word: &str| {
                rule[key].as_array().is_some_and(|all| all.contains(&word.into()))
            };
            let ends = has("resources", "pods")
                && (has("verbs", "delete") || has("verbs", "patch"))
                || has("resources", "pods/status")
                || has("resources", "volumeattachments") && has("verbs", "delete");
            assert!(!ends, "{}: {rule}", identity(object));
        }
    }
}

#[test]
fn each_kustomize_component_adds_its_own_files() {
    let Some(kubectl) = kubectl() else { return };
    let mut folders = by_folder();
    let base = folders.remove("").expect("the base");
    let names: BTreeSet<&str> = folders.keys().map(String::as_str).collect();
    let expected =
        ["admission", "alerts", "failover", "group-snapshots", "kyverno", "network-policy"];
    assert_eq!(names, BTreeSet::from(expected));
    for (folder, own) in &folders {
        let added: BTreeSet<String> =
            identities(&applied(&kubectl, &[folder], "")).difference(&base).cloned().collect();
        assert_eq!(added, *own, "{folder}");
    }
    let together = identities(&applied(&kubectl, &expected, ""));
    assert_eq!(together.len(), base.len() + folders.values().map(BTreeSet::len).sum::<usize>());
    // As the README orders it, the API server gets the limits of failover's rights before these.
    let failover = applied(&kubectl, &["failover"], "sortOptions: {order: fifo}\n");
    let at = |kind: &str| failover.iter().map(identity).position(|it| it.starts_with(kind));
    let policies = at("ValidatingAdmissionPolicy ebs-csi-failover-pods");
    assert!(policies.is_some() && policies < at("ClusterRole ebs-csi-failover"));
}

#[test]
fn group_snapshots_component_turns_both_programs_on() {
    let Some(kubectl) = kubectl() else { return };
    let made = applied(&kubectl, &["group-snapshots"], "");
    let flags = ["--feature-gates=CSIVolumeGroupSnapshot=true", "--resync-period=1m"];
    for (container, flags) in
        [("ebs-plugin", &["--enable-group-snapshots=true"][..]), ("csi-snapshotter", &flags)]
    {
        let words = arguments(&made, "ebs-csi-controller", container);
        assert!(words.ends_with(flags), "{container}: {words:?}");
    }
}

/// As the README shows it, and as `images/push --kustomize` prints it.
#[test]
fn kustomize_overlay_sets_images_by_digest() {
    let Some(kubectl) = kubectl() else { return };
    let digest = format!("sha256:{}", "0".repeat(64));
    let name = "registry.example.com/ebs-csi-controller";
    let images = format!(
        "images:\n  - {{name: {name}, newName: r.test/team/ebs-csi-controller, digest: \"{digest}\"}}\n"
    );
    let made = applied(&kubectl, &["admission"], &images);
    let text = Value::from(made).to_string();
    assert!(text.contains(&format!("\"r.test/team/ebs-csi-controller@{digest}\"")), "{text}");
    assert!(!text.contains(name));
}
