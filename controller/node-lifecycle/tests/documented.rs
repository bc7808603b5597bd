//! Checks that alerts, manifests and documentation name things that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ebs_csi_node_lifecycle::failover::{ADVERTISED, ADVERTISED_VERSION};
use ebs_csi_node_lifecycle::metrics::Metrics;
use serde_json::{Value, json};

/// Returns the directory of this crate.
fn here() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo"))
}

fn deploy(name: &str) -> String {
    let path = here().join("../../deploy").join(name);
    std::fs::read_to_string(&path).expect("a file of deploy/")
}

fn names(text: &str, prefix: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

#[test]
fn metrics_in_alerts_and_docs_are_served() {
    let page = Metrics::default().page();
    for prefix in ["aws_ebs_csi_safe_detach_", "aws_ebs_csi_onboarding_"] {
        let served = names(&page, prefix);
        for file in ["install/manifests/node-lifecycle-alerts.yaml", "docs/node-lifecycle.md"] {
            let named = names(&deploy(file), prefix);
            assert!(!named.is_empty(), "{file}");
            for name in named {
                assert!(served.contains(&name), "{file}: {name} is not served");
            }
        }
    }
}

#[test]
fn label_values_in_alerts_are_served() {
    let page = Metrics::default().page();
    let rules = deploy("install/manifests/node-lifecycle-alerts.yaml");
    for choice in rules.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
        let Some((label, values)) = choice.split_once('=') else {
            continue;
        };
        for value in values.trim_start_matches('~').trim_matches('"').split('|') {
            let sample = format!("{label}=\"{value}\"");
            assert!(page.contains(&sample), "{sample} is not served");
        }
    }
}

#[test]
fn every_alert_has_its_paragraph() {
    let page = deploy("docs/node-lifecycle.md");
    let rules = deploy("install/manifests/node-lifecycle-alerts.yaml");
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 6);
    for alert in alerts {
        assert!(page.contains(&format!("**{alert}**")), "{alert}");
    }
}

#[test]
fn csidriver_matches_go_driver_and_advertises_safe_detach() {
    let object: Value =
        serde_saphyr::from_str(&deploy("install/manifests/csidriver.yaml")).expect("YAML");
    assert_eq!(object["metadata"]["name"], ebs_csi_proto::DRIVER_NAME);
    let annotations = json!({ADVERTISED: ADVERTISED_VERSION});
    assert_eq!(object["metadata"]["annotations"], annotations);
    let spec = json!({
        "attachRequired": true,
        "podInfoOnMount": false,
        "fsGroupPolicy": "File",
        "nodeAllocatableUpdatePeriodSeconds": 10,
    });
    assert_eq!(object["spec"], spec);
}

/// A container that calls AWS does not call Kubernetes, and the other way round.
#[test]
fn no_container_has_both_aws_and_kubernetes_credentials() {
    let manifest = deploy("install/manifests/controller.yaml");
    let deployment = manifest
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str::<Value>(document).expect("YAML"))
        .find(|object| object["kind"] == "Deployment")
        .expect("a Deployment");
    let template = &deployment["spec"]["template"];
    assert_eq!(template["spec"]["automountServiceAccountToken"], false);
    let skipped = template["metadata"]["annotations"]["eks.amazonaws.com/skip-containers"]
        .as_str()
        .expect("the annotation");
    let skipped: BTreeSet<&str> = skipped.split(',').collect();
    let mut others = BTreeSet::new();
    for container in template["spec"]["containers"].as_array().expect("containers") {
        let name = container["name"].as_str().expect("a name");
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        let has_token = mounts.iter().any(|mount| mount["name"] == "kubernetes");
        assert_eq!(has_token, name != "ebs-plugin", "{name}");
        let tight = &container["securityContext"];
        assert_eq!(tight["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(tight["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(tight["capabilities"]["drop"], json!(["ALL"]), "{name}");
        if name != "ebs-plugin" {
            others.insert(name);
        }
    }
    assert_eq!(skipped, others);
}

#[test]
fn every_rbac_rule_names_existing_code() {
    let files = ["node-lifecycle-rbac", "admission/node-facts-rbac"];
    let manifest = files.map(|file| deploy(&format!("install/manifests/{file}.yaml"))).concat();
    let lines: Vec<&str> = manifest.lines().collect();
    let mut rules = 0;
    for (number, line) in lines.iter().enumerate() {
        let is_rule = line.trim_start().starts_with("- apiGroups:");
        if !is_rule {
            continue;
        }
        rules += 1;
        let before = lines[..number].iter().rev().map(|line| line.trim());
        let is_comment = |line: &&str| line.starts_with('#');
        // The comment of a role with one rule is above the role.
        let mut comment: Vec<&str> = before
            .skip_while(|line| !is_comment(line))
            .take_while(is_comment)
            .map(|line| line.trim_start_matches(['#', ' ']))
            .collect();
        comment.reverse();
        let comment = comment.join(" ");
        let mut named = 0;
        for citation in comment.split([';', ',']) {
            let Some((file, rest)) = citation.split_once(".rs (") else {
                continue;
            };
            let file = format!("{}.rs", file.rsplit(' ').next().unwrap_or_default());
            let text = std::fs::read_to_string(here().join("src").join(&file));
            let text = text.unwrap_or_else(|_| panic!("{file} is not there: {comment}"));
            let function = rest.split([')', ',']).next().unwrap_or_default();
            assert!(text.contains(&format!("fn {function}(")), "{file}: no {function}: {comment}");
            named += 1;
        }
        assert!(named > 0, "{comment}: no code is named");
    }
    assert!(rules >= 8, "{rules}");
}

/// Appends the text of every Rust file below a folder.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder of the controller") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push_str(&std::fs::read_to_string(&path).expect("a source file"));
        }
    }
}

/// Every numbered scenario that the tests run must also be in the table.
#[test]
fn every_scenario_names_existing_tests() {
    let page = deploy("docs/failure-scenarios.md");
    let table = page.split("## Scenarios").nth(1);
    let table = table.and_then(|rest| rest.split("\n## ").next());
    let rows = table.expect("the section").lines().filter(|line| line.starts_with("| F"));
    let mut text = String::new();
    for folder in ["..", "../../deploy/testing/bench/tests", "../../deploy/testing/e2e/tests"] {
        sources(&here().join(folder), &mut text);
    }
    let mut named = BTreeSet::new();
    for row in rows {
        let tests = row.trim_end_matches(['|', ' ']).rsplit('|').next();
        let tests: Vec<&str> = tests.into_iter().flat_map(|t| t.split('`')).collect();
        let tests = tests.iter().skip(1).step_by(2).copied();
        let before = named.len();
        named.extend(tests.map(str::to_owned));
        assert!(named.len() > before, "no test of its own: {row}");
    }
    assert!(named.len() >= 25, "{}", named.len());
    for name in &named {
        let is_test =
            text.contains(&format!("fn {name}(")) || text.contains(&format!("\"{name}\""));
        assert!(is_test, "{name} is not there");
    }
    // The reverse: each scenario that is run is in the table.
    for played in text.split("Scenario::new(").skip(1) {
        let name = played.split('"').nth(1).unwrap_or_default();
        let numbered = name.strip_prefix('F').is_some_and(|n| n.starts_with(char::is_numeric));
        assert!(!numbered || named.contains(name), "{name} is not in the table");
    }
}
