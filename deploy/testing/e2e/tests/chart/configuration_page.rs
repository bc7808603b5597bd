//! The schema of the values, and `deploy/docs/configuration.md`, which is generated from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ebs_csi_e2e::repository::{assert_generated, read, yaml};
use serde_json::Value;

/// The keys of the values: each path with its entry in the schema.
pub(super) type Keys = BTreeMap<String, Value>;

fn leaves(at: &str, node: &Value, all: &mut Keys) {
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let path = match at {
            "" => name.clone(),
            _ => format!("{at}.{name}"),
        };
        match child["properties"].is_object() {
            true => leaves(&path, child, all),
            false => {
                all.insert(path, child.clone());
            }
        }
    }
}

pub(super) fn schema() -> Keys {
    let text = read("deploy/install/chart/values.schema.json");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    let mut all = Keys::new();
    leaves("", &schema, &mut all);
    all
}

pub(super) fn default_of(values: &Value, path: &str) -> Option<Value> {
    let mut at = values;
    for name in path.split('.') {
        at = at.get(name)?;
    }
    Some(at.clone())
}

#[test]
fn chart_values_have_go_driver_class_and_description() {
    let values = yaml("deploy/install/chart/values.yaml");
    let schema = schema();
    for (path, leaf) in &schema {
        let class = leaf["x-go-driver"].as_str().unwrap_or_default();
        assert!(["same", "changed", "none", "own"].contains(&class), "{path}: {class:?}");
        let reason = leaf["description"].as_str().unwrap_or_default();
        assert!(reason.ends_with('.'), "{path}: {reason:?}");
    }
    // Every default belongs to a key in the schema.
    let mut open = vec![(String::new(), values)];
    while let Some((at, value)) = open.pop() {
        if schema.contains_key(&at) {
            continue;
        }
        let Some(map) = value.as_object() else {
            panic!("{at} is not in the schema");
        };
        for (name, child) in map {
            let path = match at.as_str() {
                "" => name.clone(),
                at => format!("{at}.{name}"),
            };
            open.push((path, child.clone()));
        }
    }
    let counted = schema.values().filter(|it| it["x-go-driver"] != "own").count();
    assert!(counted >= 190, "{counted} keys of the Go driver's chart");
}

#[test]
fn configuration_page_matches_values_and_schema() {
    let values = yaml("deploy/install/chart/values.yaml");
    assert_generated("deploy/docs/configuration.md", &page(&values), "chart");
}

fn page(values: &Value) -> String {
    let schema = schema();
    let mut out = String::from(
        "# Values of the chart\n\n\
         For operators: every value, and what it is to the key of that name in the Go driver's chart 2.64.\n\n\
         - *same*: name, meaning and default carry over.\n\
         - *changed*: the key is taken, its effect differs as told.\n\
         - *none*: no effect. A value that matters is noted (in NOTES and in the rendered objects) or\n  \
         refused.\n\
         - *own*: the Go driver's chart does not have it.\n\n\
         NAME stands for the sidecars attacher, provisioner, resizer, snapshotter and volumemodifier.\n\
         [parameters.md](parameters.md) has what a class may hold.\n\n\
         Generated from `deploy/install/chart/values.schema.json` and `values.yaml` by\n\
         `UPDATE_GENERATED=1 cargo test -p ebs-csi-e2e --test chart`.\n",
    );
    let count = |class: &str| schema.values().filter(|it| it["x-go-driver"] == class).count();
    let _ = writeln!(
        out,
        "\nsame {}, changed {}, none {}, own {}.",
        count("same"),
        count("changed"),
        count("none"),
        count("own")
    );
    let part_of = |path: &str| match path.split('.').next() {
        Some("controller") => "controller",
        Some("node") => "node",
        Some("sidecars") => "sidecars",
        _ => "top level",
    };
    for part in ["top level", "controller", "node", "sidecars"] {
        let _ =
            writeln!(out, "\n## {part}\n\n| Key | Default | Class | Meaning |\n|---|---|---|---|");
        let leaves = schema.iter().filter(|(path, _)| part_of(path) == part);
        for (key, cells) in merged(leaves.map(|(path, leaf)| (path, cells(values, path, leaf)))) {
            let _ = writeln!(out, "| {key} | {cells} |");
        }
    }
    out
}

/// The sidecars whose values have the same keys, in the order of the page.
const SIDECARS: [&str; 5] = ["attacher", "provisioner", "resizer", "snapshotter", "volumemodifier"];

/// Returns the first cell of each row with the others; equal rows of several sidecars are one row.
fn merged<'a>(rows: impl Iterator<Item = (&'a String, String)>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut shared: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for (path, cells) in rows {
        let named = path.strip_prefix("sidecars.").and_then(|rest| rest.split_once('.'));
        match named {
            Some((name, key)) => shared.entry((key, cells)).or_default().push(name),
            None => {
                all.insert(format!("`{path}`"), cells);
            }
        }
    }
    for ((key, cells), names) in shared {
        let first = match names[..] {
            [name] => format!("`sidecars.{name}.{key}`"),
            _ if names == SIDECARS => format!("`sidecars.NAME.{key}`"),
            _ => format!("`sidecars.NAME.{key}` ({})", names.join(", ")),
        };
        all.insert(first, cells);
    }
    all
}

fn cells(values: &Value, path: &str, leaf: &Value) -> String {
    let default = match default_of(values, path) {
        None => "unset".to_owned(),
        Some(Value::Null) => "null".to_owned(),
        Some(value @ (Value::Object(_) | Value::Array(_))) => match value.to_string() {
            short if short.len() <= 40 => format!("`{short}`"),
            _ => "see values.yaml".to_owned(),
        },
        Some(value) => format!("`{value}`"),
    };
    let class = leaf["x-go-driver"].as_str().unwrap_or_default();
    let meaning = leaf["description"].as_str().unwrap_or_default();
    format!("{default} | {class} | {meaning}")
}
