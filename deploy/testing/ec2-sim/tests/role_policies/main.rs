//! The files of `policy/iam`: which calls they allow and refuse, that each of their conditions is
//! needed, and that IAM would accept them.

mod calls;
#[path = "../world/mod.rs"]
mod world;
mod written;

use std::collections::BTreeMap;

use serde_json::Value;

/// Policy documents by the name of their file.
type Policies = BTreeMap<String, Value>;

const BY_FEATURE: &[&str] = &[
    "base",
    "modify",
    "snapshots",
    "group-snapshots",
    "clone",
    "fast-restore-and-lock",
    "kms",
    "fence",
    "migrated",
];
const CLUSTER_SCOPED: &[&str] = &["cluster-scoped", "kms", "fence"];
/// The cluster's name, as an operator would write it into `migrated.json`.
const CLUSTER: &str = "test";

fn text(file: &str) -> String {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let path = std::path::Path::new(&root).join(format!("../../../policy/iam/{file}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn policies(files: &[&str]) -> Policies {
    let read = |file: &&str| {
        let text = text(file).replace("/NAME", &format!("/{CLUSTER}"));
        ((*file).to_owned(), serde_json::from_str(&text).expect("a policy document"))
    };
    files.iter().map(read).collect()
}
