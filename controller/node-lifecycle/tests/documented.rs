//! Alerts and their page name what is there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ebs_csi_node_lifecycle::failover::{ADVERTISED, ADVERTISED_VERSION};
use ebs_csi_node_lifecycle::metrics::Metrics;
use serde_json::{Value, json};

fn deploy(name: &str) -> String {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let path = PathBuf::from(here).join("../../deploy").join(name);
    std::fs::read_to_string(&path).expect("a file of deploy/")
}

fn names(text: &str, prefix: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_metric_that_alerts_and_their_page_name_is_served() {
    let page = Metrics::default().page();
    let served = names(&page, "aws_ebs_csi_safe_detach_");
    for file in [
        "kubernetes/node-lifecycle-alerts.yaml",
        "docs/node-lifecycle.md",
    ] {
        let named = names(&deploy(file), "aws_ebs_csi_safe_detach_");
        assert!(!named.is_empty(), "{file}");
        for name in named {
            assert!(served.contains(&name), "{file}: {name} is not served");
        }
    }
}

#[test]
fn every_label_that_an_alert_chooses_is_served() {
    let page = Metrics::default().page();
    let rules = deploy("kubernetes/node-lifecycle-alerts.yaml");
    for choice in rules
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
    {
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
    let rules = deploy("kubernetes/node-lifecycle-alerts.yaml");
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() >= 6);
    for alert in alerts {
        assert!(page.contains(&format!("**{alert}**")), "{alert}");
    }
}

#[test]
fn the_csidriver_object_is_the_go_drivers_and_advertises_safe_detach() {
    let object: Value = serde_saphyr::from_str(&deploy("kubernetes/csidriver.yaml")).expect("YAML");
    assert_eq!(object["metadata"]["name"], ebs_csi_proto::DRIVER_NAME);
    let annotations = json!({ADVERTISED: ADVERTISED_VERSION});
    assert_eq!(object["metadata"]["annotations"], annotations);
    let spec = json!({"attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File"});
    assert_eq!(object["spec"], spec);
}
