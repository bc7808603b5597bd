//! Compares the dependencies that are allowed between crates with `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use ebs_csi_e2e::array;
use ebs_csi_e2e::program::output;
use ebs_csi_e2e::repository::{read, root};
use serde_json::Value;
use spdx::{Expression, ParseMode};

const OF_CONTROLLER: &[&str] = &[
    "ebs-csi-ec2",
    "ebs-csi-proto",
    "ebs-csi-wire",
    "ebs-csi-policy",
    "ebs-csi-confine",
    "ebs-csi-parameters",
    "ebs-csi-safe-detach",
    "ebs-csi-template",
];

/// What node-lifecycle depends on: the same, but nothing that calls EC2.
const OF_NODE_LIFECYCLE: &[&str] = OF_CONTROLLER.split_at(1).1;

/// The crates of this repository, each with those of them that it may depend on (normal and build
/// dependencies).
const ARROWS: &[(&str, &[&str])] = &[
    ("ebs-csi-wire", &[]),
    ("ebs-csi-document", &[]),
    ("ebs-csi-policy", &["ebs-csi-wire", "ebs-csi-document"]),
    ("ebs-csi-confine", &["ebs-csi-policy"]),
    ("ebs-csi-audit", &["ebs-csi-policy", "ebs-csi-confine", "ebs-csi-document"]),
    ("ebs-csi-proto", &["ebs-csi-wire"]),
    ("ebs-csi-mount-helper", &["ebs-csi-wire", "ebs-csi-policy", "ebs-csi-confine"]),
    ("ebs-csi-node-agent", &["ebs-csi-proto", "ebs-csi-wire", "ebs-csi-policy", "ebs-csi-confine"]),
    ("ebs-csi-safe-detach", &["ebs-csi-wire"]),
    ("ebs-csi-template", &[]),
    (
        "ebs-csi-parameters",
        &["ebs-csi-proto", "ebs-csi-wire", "ebs-csi-policy", "ebs-csi-template"],
    ),
    ("ebs-csi-ec2", &["ebs-csi-proto", "ebs-csi-wire"]),
    ("ebs-csi-node-lifecycle", OF_NODE_LIFECYCLE),
    ("ebs-csi-controller", OF_CONTROLLER),
    ("ec2-sim", &[]),
    ("aws-ebs-csi-driver", &["ebs-csi-proto", "ebs-csi-wire", "ebs-csi-policy", "ebs-csi-confine"]),
    ("ebs-csi-sandbox", &["ebs-csi-proto", "ebs-csi-policy", "ebs-csi-audit"]),
    ("ebs-csi-e2e", &["ebs-csi-sandbox"]),
    ("ebs-csi-bench", &["ebs-csi-proto", "ebs-csi-wire", "ebs-csi-policy", "ebs-csi-sandbox"]),
    ("ebs-csi-images", &[]),
];

/// Crates that a crate of this repository must not link at run time, directly or through others.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("ebs-csi-wire", &["tokio", "tonic", "serde"]),
    ("ebs-csi-safe-detach", &["tokio", "tonic", "serde"]),
    ("ebs-csi-policy", &["tokio", "tonic", "serde", "toml", "tracing", "anyhow"]),
    ("ebs-csi-confine", &["tokio", "tonic", "serde", "toml", "tracing", "anyhow"]),
    ("ebs-csi-audit", &["tokio", "tonic", "serde", "toml", "tracing", "anyhow"]),
    ("ebs-csi-mount-helper", &["tokio", "tonic", "serde", "toml", "tracing", "hyper"]),
    ("ebs-csi-node-agent", &["aws-config", "aws-sdk-ec2", "aws-sdk-sts"]),
    ("ebs-csi-node-agent", &["kube", "reqwest", "rustls"]),
    ("ebs-csi-controller", &["kube", "k8s-openapi"]),
    ("ebs-csi-node-lifecycle", &["aws-config", "aws-sdk-ec2", "aws-sdk-sts", "ebs-csi-controller"]),
    ("ec2-sim", &["aws-sdk-ec2", "aws-config"]),
];

/// The manifests of the workspaces; each workspace has its own Cargo.lock.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "controller/node-lifecycle/Cargo.toml"];

/// Returns what cargo prints about a workspace.
fn cargo(command: &str, workspace: &str, arguments: &[&str]) -> String {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([command, "--locked", "--offline", "--manifest-path", workspace]).args(arguments);
    output(cargo.current_dir(root())).unwrap_or_else(|why| panic!("{why}"))
}

fn workspace_of(package: &str) -> &'static str {
    match package {
        "ebs-csi-node-lifecycle" => WORKSPACES[1],
        _ => WORKSPACES[0],
    }
}

/// Returns the packages of this repository.
fn packages() -> Vec<Value> {
    let packages = |workspace: &&str| {
        let text = cargo("metadata", workspace, &["--format-version=1", "--no-deps"]);
        let metadata: Value = serde_json::from_str(&text).expect("JSON");
        array(&metadata["packages"]).to_vec()
    };
    WORKSPACES.iter().flat_map(packages).collect()
}

/// Returns what a package depends on, each with whether it is for tests alone.
fn dependencies(package: &Value) -> impl Iterator<Item = (&str, bool)> {
    let all = package["dependencies"].as_array().expect("dependencies").iter();
    all.map(|it| (it["name"].as_str().expect("a name"), it["kind"] == "dev"))
}

/// Returns the crates that a crate links at run time: normal dependencies, without the procedural
/// macros, which run in the compiler.
fn linked(package: &str) -> BTreeSet<String> {
    let shown = ["--prefix=none", "--format={p}", "--edges=normal,no-proc-macro", "-p", package];
    cargo("tree", workspace_of(package), &shown)
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.is_empty() && *name != package)
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_import_only_along_the_documented_arrows() {
    let packages = packages();
    let ours: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|p| Some((p["name"].as_str()?, p))).collect();
    let known: BTreeSet<_> = ARROWS.iter().map(|(name, _)| *name).collect();
    let have: BTreeSet<_> = ours.keys().copied().collect();
    assert_eq!(have, known, "a crate was added or removed: decide its arrows here");

    for (name, allowed) in ARROWS {
        for (target, is_test) in dependencies(ours[name]) {
            let is_allowed = !known.contains(target) || is_test || allowed.contains(&target);
            assert!(is_allowed, "{name} must not depend on {target}: see ARROWS");
        }
    }
}

#[test]
fn no_crate_links_what_its_trust_level_forbids() {
    for (name, forbidden) in FORBIDDEN {
        let linked = linked(name);
        for bad in *forbidden {
            assert!(!linked.contains(*bad), "{name} links {bad}");
        }
    }
}

fn is_aws_sdk(name: &str) -> bool {
    name.starts_with("aws-") && !name.starts_with("aws-lc-") && name != "aws-ebs-csi-driver"
}

#[test]
fn controller_alone_links_aws_sdk_through_ec2() {
    for (name, _) in ARROWS {
        let is_allowed = ["ebs-csi-controller", "ebs-csi-ec2"].contains(name);
        let sdk: Vec<_> = linked(name).into_iter().filter(|it| is_aws_sdk(it)).collect();
        assert!(is_allowed || sdk.is_empty(), "{name} links {sdk:?}");
    }
    for package in packages() {
        for (target, is_test) in dependencies(&package) {
            let is_allowed = is_test || package["name"] == "ebs-csi-ec2";
            assert!(is_allowed || !is_aws_sdk(target), "{} names {target}", package["name"]);
        }
    }
}

/// The shipped programs' packages, each with its list in `policy/supply-chain`, and whether each
/// line of the list gives a reason.
const LISTS: &[(&str, &str, bool)] = &[
    ("ebs-csi-mount-helper", "helper", true),
    ("ebs-csi-node-agent", "node-agent", false),
    ("ebs-csi-controller", "controller", false),
    ("ebs-csi-node-lifecycle", "node-lifecycle", false),
    ("aws-ebs-csi-driver", "launcher", false),
    ("ebs-csi-audit", "auditor", false),
];

#[test]
fn programs_link_exactly_their_listed_crates() {
    for (package, list, has_reasons) in LISTS {
        let path = format!("policy/supply-chain/{list}-crates.txt");
        let text = read(&path);
        let mut listed = BTreeSet::new();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (name, why) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            assert!(!has_reasons || !why.trim().is_empty(), "{path}: {name} has no reason");
            assert!(listed.insert(name.to_owned()), "{path}: {name} stands there twice");
        }
        let linked = linked(package);
        let unlisted: Vec<_> = linked.difference(&listed).collect();
        let unused: Vec<_> = listed.difference(&linked).collect();
        assert!(unlisted.is_empty(), "linked without a line in {path}: {unlisted:?}");
        assert!(unused.is_empty(), "listed in {path} but not linked: {unused:?}");
    }
}

fn strings(value: &toml::Value) -> BTreeSet<String> {
    value.as_array().expect("a list").iter().map(|one| one.as_str().expect("text").into()).collect()
}

/// What cargo-deny would say without its list of vulnerabilities.
#[test]
fn licences_and_sources_are_those_of_deny_toml() {
    let deny: toml::Table = read("deny.toml").parse().expect("TOML");
    let allowed = strings(&deny["licenses"]["allow"]);
    let mut used = BTreeSet::new();
    for workspace in WORKSPACES {
        let lock: toml::Table = read(&workspace.replace(".toml", ".lock")).parse().expect("TOML");
        for package in lock["package"].as_array().expect("packages") {
            let Some(source) = package.get("source").and_then(toml::Value::as_str) else {
                continue;
            };
            let is_published = source.starts_with("registry+") && package.get("checksum").is_some();
            assert!(is_published, "{workspace}: {package:?}");
        }
        let edges = "--edges=normal,build,dev";
        let shown = ["--workspace", "--prefix=none", edges, "--format={p}\t{l}"];
        let tree = cargo("tree", workspace, &shown);
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let line = line.trim_end_matches(" (*)");
            let (package, licence) = line.split_once('\t').unwrap_or((line, ""));
            let licence = Expression::parse_mode(licence, ParseMode::LAX)
                .unwrap_or_else(|error| panic!("{package}: {error}"));
            let is_allowed = licence.evaluate(|term| allowed.contains(&term.to_string()));
            assert!(is_allowed, "{package}: deny.toml does not allow {licence}");
            used.extend(licence.requirements().map(|term| term.req.to_string()));
        }
    }
    let unused: Vec<_> = allowed.difference(&used).collect();
    assert!(unused.is_empty(), "allowed, but nothing has it: {unused:?}");
    for (part, list) in [("advisories", "ignore"), ("bans", "deny"), ("bans", "skip")] {
        for entry in deny[part][list].as_array().expect("a list") {
            let reason = entry.get("reason").and_then(toml::Value::as_str).unwrap_or_default();
            assert!(!reason.is_empty(), "deny.toml: {entry:?} has no reason");
        }
    }
}

/// What only tests and measurements turn on.
const OF_TESTS: &[(&str, &[&str])] =
    &[("tokio", &["test-util", "rt-multi-thread"]), ("ebs-csi-mount-helper", &["fault-points"])];

/// Cargo gives all packages of one build the same features of a dependency, so that each build is
/// looked at as `deploy/build-release` makes it.
#[test]
fn shipped_programs_have_no_features_of_tests() {
    let script = read("deploy/build-release");
    let shipped = script.split_once("shipped=(").and_then(|(_, rest)| rest.split_once(')'));
    let (shipped, _) = shipped.expect("the list of packages");
    for (workspace, packages) in WORKSPACES.iter().zip([shipped, "ebs-csi-node-lifecycle"]) {
        let mut shown = vec!["--edges=normal", "--prefix=none", "--format={p} features={f}"];
        shown.extend(packages.split_whitespace().flat_map(|package| ["-p", package]));
        let text = cargo("tree", workspace, &shown);
        let features = |name: &str| -> BTreeSet<&str> {
            text.lines()
                .filter(|line| line.split(' ').next() == Some(name))
                .filter_map(|line| line.split_once("features="))
                .flat_map(|(_, features)| features.trim_end_matches(" (*)").split(','))
                .collect()
        };
        assert!(features("tokio").contains("rt"), "{text}");
        for (name, of_tests) in OF_TESTS {
            let found = features(name);
            assert!(of_tests.iter().all(|one| !found.contains(one)), "{name}: {found:?}");
        }
    }
}

#[test]
fn nothing_outside_deploy_imports_a_binary_crate() {
    let packages = packages();
    let is_binary = |package: &&Value| {
        let mut targets = array(&package["targets"]).iter();
        targets.any(|it| it["name"] == package["name"] && it["kind"][0] == "bin")
    };
    let binaries = packages.iter().filter(is_binary);
    let binaries: BTreeSet<&str> = binaries.filter_map(|it| it["name"].as_str()).collect();
    for package in &packages {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        if manifest.contains("/deploy/") {
            continue;
        }
        for (target, is_test) in dependencies(package) {
            let is_allowed = !binaries.contains(target) || is_test;
            assert!(is_allowed, "{} imports the binary crate {target}", package["name"]);
        }
    }
}
