//! What each set of values changes of the committed manifests.
//!
//! `deploy/install/manifests` holds the objects of the default values as YAML, and
//! `rendered/defaults.txt` those that only Helm installs. For each other set of values,
//! `rendered/NAME.txt` holds the lines that differ from the default values' objects. A change of a
//! template therefore shows in review once as YAML, and once more for each set that it affects in
//! another way than the default values.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use ebs_csi_e2e::repository::{assert_generated, entries, read};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{KUBERNETES, MONITORS, SNAPSHOTS, helm, objects, sets, text_of};

const FOLDER: &str = "deploy/testing/e2e/tests/chart/rendered";

/// The manifests that `deploy/install/chart/render` writes from the default values alone.
const MANIFESTS: [&str; 8] = [
    "controller",
    "node",
    "csidriver",
    "sidecars-rbac",
    "node-lifecycle-rbac",
    "admission/node-lifecycle-policy",
    "admission/node-policy",
    "admission/node-facts-rbac",
];

/// Longer values are cut and end with a digest.
const LONGEST_VALUE: usize = 480;
const KEPT_OF_LONG_VALUE: usize = 80;

/// Converts an object to lines of the form `path: value`. Entries of a list are named where each
/// has a name of its own; otherwise an entry is one line.
fn flatten(path: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, child) in map {
                let plain = key.chars().all(|c| c.is_ascii_alphanumeric());
                let path = match (path, plain) {
                    ("", _) => key.clone(),
                    (_, true) => format!("{path}.{key}"),
                    (_, false) => format!("{path}[{key:?}]"),
                };
                flatten(&path, child, lines);
            }
        }
        Value::Array(entries) if !entries.is_empty() => {
            let names: BTreeSet<&str> =
                entries.iter().filter_map(|it| it["name"].as_str()).collect();
            let named = names.len() == entries.len();
            for entry in entries {
                match entry["name"].as_str().filter(|_| named) {
                    Some(name) => {
                        flatten(&format!("{path}[{name}]"), &without(entry, &["name"]), lines)
                    }
                    None => lines.push(format!("{path}[]: {}", shortened(entry))),
                }
            }
        }
        _ => lines.push(format!("{path}: {}", shortened(value))),
    }
}

fn without(value: &Value, keys: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        for key in keys {
            map.remove(*key);
        }
    }
    value
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= LONGEST_VALUE {
        return text;
    }
    let kept: String = text.chars().take(KEPT_OF_LONG_VALUE).collect();
    let digest = Sha256::digest(text.as_bytes());
    let digest: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{kept}… ({} bytes, sha256 {digest})", text.len())
}

/// Returns the removed and the added lines, by a longest common subsequence. An addition to a list
/// begins with the line before it.
fn differences(old: &[String], new: &[String]) -> Vec<String> {
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    let mut unchanged: Option<&str> = None;
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            unchanged = Some(&new[j]);
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            out.push(format!("- {}", old[i]));
            unchanged = None;
            i += 1;
        } else {
            if let Some(before) = unchanged.take().filter(|before| in_one_list(before, &new[j])) {
                out.push(format!("  {before}"));
            }
            out.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
    out
}

fn in_one_list(before: &str, line: &str) -> bool {
    let path = line.split(": ").next().unwrap_or_default();
    let list = path.rfind('[').filter(|at| !path[at + 1..].starts_with('"'));
    list.is_some_and(|at| before.starts_with(&path[..=at]))
}

/// Returns an object's kind, namespace and name.
pub(crate) fn identity(object: &Value) -> String {
    let of = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    match of("namespace") {
        "" => format!("{kind} {}", of("name")),
        namespace => format!("{kind} {namespace}/{}", of("name")),
    }
}

/// Returns the lines of an object without its identity.
fn lines_of(object: &Value) -> Vec<String> {
    let mut object = without(object, &["kind"]);
    object["metadata"] = without(&object["metadata"], &["name", "namespace"]);
    let mut lines = Vec::new();
    flatten("", &object, &mut lines);
    lines
}

/// Returns the default object to compare with: the object itself, else one of the kind whose name
/// the object's name extends, as that of an additional DaemonSet.
fn nearest<'a>(defaults: &'a [Value], object: &Value) -> Option<&'a Value> {
    let own = identity(object);
    if let Some(same) = defaults.iter().find(|it| identity(it) == own) {
        return Some(same);
    }
    let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let extends = |it: &&Value| {
        let rest = name(object).strip_prefix(&name(it)).map(str::to_owned);
        it["kind"] == object["kind"]
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    defaults.iter().filter(extends).max_by_key(|it| name(it).len())
}

/// Writes how a set of objects differs from the default ones.
fn report(defaults: &[Value], objects: &[Value]) -> String {
    let mut out = String::new();
    // The labels that all objects have.
    let labels = &defaults[0]["metadata"]["labels"];
    for object in objects {
        let own = identity(object);
        let base = nearest(defaults, object);
        let (heading, old) = match base {
            Some(base) if identity(base) == own => (None, lines_of(base)),
            Some(base) => {
                (Some(format!(", new, compared with {}", identity(base))), lines_of(base))
            }
            None => {
                let bare = serde_json::json!({"metadata": {"labels": labels}});
                (Some(", new".to_owned()), lines_of(&bare))
            }
        };
        let differences = differences(&old, &lines_of(object));
        if heading.is_some() || !differences.is_empty() {
            let _ = writeln!(out, "{own}{}", heading.unwrap_or_default());
        }
        for line in differences {
            let _ = writeln!(out, "{line}");
        }
    }
    let kept: BTreeSet<String> = objects.iter().map(identity).collect();
    for object in defaults {
        let own = identity(object);
        if !kept.contains(&own) {
            let _ = writeln!(out, "{own}, not rendered");
        }
    }
    out
}

/// Returns the name of each set with the arguments that render it, the default values first. All
/// sets are rendered for new Kubernetes with all definitions, the default values also for old
/// Kubernetes without any.
fn named_sets() -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    // The set without values is the last one.
    for set in sets().into_iter().rev() {
        let name = match set.last().map(Path::new) {
            None => "defaults",
            Some(path) if path.ends_with("clusters/values.yaml") => "rig",
            Some(path) => path.file_stem().and_then(|it| it.to_str()).expect("a name"),
        };
        let mut arguments = vec!["--kube-version", KUBERNETES[1]];
        arguments.extend(SNAPSHOTS.into_iter().chain(MONITORS));
        let arguments = arguments.into_iter().map(str::to_owned);
        all.push((name.to_owned(), set.iter().cloned().chain(arguments).collect()));
    }
    let old = ["--kube-version", KUBERNETES[0]].map(str::to_owned);
    all.push(("defaults-on-oldest-kubernetes".to_owned(), old.to_vec()));
    all
}

#[test]
fn rendered_sets_match_committed_differences() {
    let Some(helm) = helm() else { return };
    let manifests = MANIFESTS.map(|name| read(&format!("deploy/install/manifests/{name}.yaml")));
    let manifests: Vec<Value> = manifests.iter().flat_map(|text| objects(text)).collect();
    let mut defaults = Vec::new();
    let mut files = BTreeSet::new();
    for (name, arguments) in named_sets() {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let rendered = text_of(&helm, "aws-ebs-csi-driver", &arguments).expect(&name);
        let rendered = objects(&rendered);
        let made = match name.as_str() {
            "defaults" => report(&manifests, &rendered),
            _ => report(&defaults, &rendered),
        };
        if name == "defaults" {
            defaults = rendered;
        }
        assert_generated(&format!("{FOLDER}/{name}.txt"), &made, "chart");
        files.insert(format!("{name}.txt"));
    }
    for (name, _) in entries(FOLDER) {
        assert!(files.contains(&name), "{FOLDER}/{name} belongs to no set of values");
    }
}

#[test]
fn report_shows_each_kind_of_change() {
    let object = |name: &str, arguments: &[&str], text: &str| {
        serde_json::json!({
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"a.b/c": "d"}},
            "list": [{"name": "one", "arguments": arguments}],
            "text": text,
        })
    };
    let long = "x".repeat(LONGEST_VALUE);
    let defaults = [object("a", &["1", "2"], &long), object("b", &[], "")];
    let unchanged = report(&defaults, &defaults);
    assert_eq!(unchanged, "");
    let moved = report(&defaults, &[object("a", &["2", "1"], &long), defaults[1].clone()]);
    assert!(moved.contains("- list[one].arguments[]: \"1\""), "{moved}");
    let added = report(&defaults, &[object("a", &["1", "3", "2"], &long), defaults[1].clone()]);
    let expected = "ConfigMap a\n  list[one].arguments[]: \"1\"\n+ list[one].arguments[]: \"3\"\n";
    assert_eq!(added, expected);
    let other = format!("{long}y");
    let changed = report(&defaults, &[object("a", &["1", "2"], &other), defaults[1].clone()]);
    assert_eq!(changed.matches("sha256").count(), 2, "{changed}");
    let fewer = report(&defaults, &defaults[..1]);
    assert_eq!(fewer, "ConfigMap b, not rendered\n");
    let like =
        report(&defaults, &[defaults[0].clone(), defaults[1].clone(), object("b-c", &[], "")]);
    assert_eq!(like, "ConfigMap b-c, new, compared with ConfigMap b\n");
    let mut label = defaults.clone();
    label[1]["metadata"]["labels"]["a.b/c"] = "e".into();
    let label = report(&defaults, &label);
    assert!(label.contains("+ metadata.labels[\"a.b/c\"]: \"e\""), "{label}");
}
