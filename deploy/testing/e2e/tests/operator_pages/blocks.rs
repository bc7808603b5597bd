//! What pages show and name: YAML, classes, metrics, flags; and how long a page may be.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ebs_csi_e2e::metrics::{named, of_sample, served};
use ebs_csi_e2e::repository::{quoted, texts};
use ebs_csi_parameters::{
    Claim, SnapshotClaim, SnapshotParameters, VolumeAttributes, VolumeParameters, render_tag,
};
use ebs_csi_proto::DRIVER_NAME;
use serde_json::Value;

use crate::{printed, programs, read};

/// Returns the pages of `deploy/docs`, by their names.
fn pages() -> BTreeMap<String, String> {
    texts("deploy/docs", ".md")
}

/// Returns the documents of a page's blocks of YAML.
fn documents(page: &str) -> Vec<Value> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let documents = blocks.flat_map(|block| block.split("---\n"));
    documents.map(|text| serde_saphyr::from_str(text).expect(text)).collect()
}

/// Has the driver's own parser read the parameters of a class; returns whether the object is one.
fn check_class(object: &Value) -> Result<bool, String> {
    let driver = ["provisioner", "driverName", "driver"].map(|key| &object[key]);
    if !driver.into_iter().any(|name| name == DRIVER_NAME) {
        return Ok(false);
    }
    let parameters = object["parameters"].as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("a value is no text");
    let parameters: HashMap<String, String> = parameters
        .map(|(key, value)| Ok((key.clone(), text(value)?)))
        .collect::<Result<_, &str>>()?;
    let text = "storage".to_owned();
    let volume = Claim { name: text.clone(), namespace: text.clone(), volume: text.clone() };
    let snapshot = SnapshotClaim { name: text.clone(), namespace: text.clone(), content: text };
    let said = |failure: ebs_csi_proto::Failure| failure.to_string();
    let tags = match object["kind"].as_str() {
        Some("StorageClass") => VolumeParameters::parse(&parameters).map_err(said)?.tags,
        Some("VolumeAttributesClass") => VolumeAttributes::parse(&parameters).map_err(said)?.tags,
        Some("VolumeSnapshotClass") => {
            for tag in SnapshotParameters::parse(&parameters).map_err(said)?.tags {
                render_tag("parameters", &tag, &snapshot).map_err(said)?;
            }
            return Ok(true);
        }
        _ => return Ok(false),
    };
    for tag in tags {
        render_tag("parameters", &tag, &volume).map_err(said)?;
    }
    Ok(true)
}

#[test]
fn classes_in_pages_are_accepted_by_parser() {
    let mut seen = 0;
    for (name, page) in pages() {
        for object in documents(&page) {
            let is_class = check_class(&object).unwrap_or_else(|why| panic!("{name}: {why}"));
            seen += usize::from(is_class);
        }
    }
    assert!(seen >= 7, "{seen}");
    for wrong in [
        "{kind: StorageClass, provisioner: ebs.csi.aws.com, parameters: {typ: gp3}}",
        "{kind: StorageClass, provisioner: ebs.csi.aws.com, parameters: {iops: 3000}}",
        "{kind: VolumeAttributesClass, driverName: ebs.csi.aws.com, parameters: {IOPS: \"1\"}}",
        "{kind: VolumeSnapshotClass, driver: ebs.csi.aws.com, parameters: {lockMode: x}}",
        "{kind: StorageClass, provisioner: ebs.csi.aws.com, parameters: {tagSpecification_1: \"a={{ .N }}\"}}",
    ] {
        let object = serde_saphyr::from_str(wrong).expect(wrong);
        assert!(check_class(&object).is_err(), "{wrong}");
    }
}

#[test]
fn metrics_that_pages_name_are_listed() {
    let known = served();
    let is_known = |name: &str| known.contains_key(name) || of_sample(&known, name).is_some();
    assert!(
        is_known("aws_ebs_csi_rpc_duration_seconds_sum") && !is_known("aws_ebs_csi_operations_sum")
    );
    let mut seen = 0;
    for (page, text) in pages() {
        for span in quoted(&text).filter(|span| !span.contains('*')) {
            for name in named(span) {
                assert!(is_known(name), "{page}: {name} is no metric");
                seen += 1;
            }
        }
    }
    assert!(seen >= 80, "{seen}");
}

/// The programs whose flags pages name, and the arguments that print these.
const HELP: [(&str, &[&str]); 8] = [
    ("controller", &["--help"]),
    ("controller", &["orphans", "--help"]),
    ("node-lifecycle", &["--help"]),
    ("node-lifecycle", &["preflight", "--help"]),
    ("node-agent", &["--help"]),
    ("node-agent", &["preflight", "--help"]),
    ("node-agent", &["pre-stop-hook", "--help"]),
    ("mount-helper", &["--help"]),
];

/// Pages for operators about the driver's use; those for developers name flags of other programs,
/// too.
const WITH_FLAGS: [&str; 11] = [
    "credentials.md",
    "faq.md",
    "group-snapshots.md",
    "hardening.md",
    "limitations.md",
    "operate.md",
    "safe-detach.md",
    "snapshots.md",
    "troubleshooting.md",
    "upgrade.md",
    "volumes.md",
];

/// Flags of Helm and of the rig in prose.
const OF_OTHERS: [&str; 5] =
    ["--take-ownership", "--force-conflicts", "--force-replace", "--force", "--peer-bin"];

/// A flag of a sidecar is one that the chart gives it.
#[test]
fn flags_that_pages_name_exist() {
    let Some(binaries) = programs(&["controller", "node-lifecycle", "node-agent", "mount-helper"])
    else {
        return;
    };
    let mut offered = read("deploy/install/chart/templates/controller.yaml");
    offered += &read("policy/audit/src/main.rs");
    for (program, arguments) in HELP {
        offered += &printed(&binaries, program, arguments);
    }
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let offered: BTreeSet<&str> = offered.split(is_end).filter(|it| it.starts_with("--")).collect();
    assert!(offered.contains("--untrusted-images") && !offered.contains("--untrusted"));
    let mut seen = 0;
    for name in WITH_FLAGS {
        let page = read(&format!("deploy/docs/{name}"));
        // Of a command, the test of the pages' commands judges.
        for span in quoted(&page).filter(|span| span.starts_with("--")) {
            for flag in span.split(is_end).filter(|word| word.starts_with("--")) {
                let known = offered.contains(flag) || OF_OTHERS.contains(&flag);
                assert!(known, "{name}: {flag}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "{seen}");
}

/// The most words of a page for operators, unless it is generated.
const WORDS: usize = 1500;

#[test]
fn operator_pages_are_short_and_name_readers() {
    let mut checked = 0;
    for (name, page) in pages() {
        let first = page.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default();
        assert!(first.starts_with("For "), "{name}: for whom is it?");
        if first.starts_with("For operators") && !page.contains("Generated ") {
            let words = page.split_whitespace().count();
            assert!(words <= WORDS, "{name}: {words} words");
            checked += 1;
        }
    }
    assert!(checked >= 15, "{checked}");
}
