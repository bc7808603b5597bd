//! The files of the repository in which a test runs, and the programs that the rig builds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Returns the repository's root: cargo names this crate's directory when a test runs. `env!` would
/// be wrong: a target directory kept between checkouts would hold another checkout's directory.
pub fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo"))
        .join("../../..")
}

/// Returns the text of a file.
pub fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns the content of a file in YAML.
pub fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&read(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns the text between backticks.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the files under version control with one of these endings; none in an export without
/// git.
pub fn tracked(endings: &[&str]) -> Vec<PathBuf> {
    let out = Command::new("git").arg("ls-files").current_dir(root()).output();
    let Some(out) = out.ok().filter(|o| o.status.success()) else {
        println!("skipped: this is not a git checkout");
        return Vec::new();
    };
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter(|name| endings.iter().any(|e| name.ends_with(e)))
        .map(PathBuf::from)
        .filter(|path| root().join(path).exists())
        .collect()
}

/// Returns the entries of a folder, sorted: names and paths.
pub fn entries(folder: &str) -> Vec<(String, PathBuf)> {
    let entries =
        std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut entries: Vec<_> = entries
        .map(|entry| entry.expect("an entry"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    entries.sort();
    entries
}

/// Returns the texts of the files of a folder that end so, by their names.
pub fn texts(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let files = entries(folder).into_iter().filter(|(name, _)| name.ends_with(ending));
    files.map(|(name, _)| (name.clone(), read(&format!("{folder}/{name}")))).collect()
}

/// Returns the files with this extension beneath a folder, sorted by their paths.
pub fn beneath(folder: impl AsRef<Path>, extension: &str) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root().join(folder)]);
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).unwrap_or_else(|e| panic!("{}: {e}", at.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns whether `path/of/file.rs::name` is a test, or a scenario's file and its function.
pub fn is_a_test(cited: &str) -> bool {
    let Some((file, name)) = cited.split_once("::") else { return false };
    let Ok(text) = std::fs::read_to_string(root().join(file)) else { return false };
    // The scenarios on real kubelets.
    if file.starts_with("deploy/testing/clusters/scenarios/") {
        return text.lines().any(|line| line == format!("def {name}(rig):"));
    }
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    }) else {
        return false;
    };
    // The function's attributes stand above it; inside a proptest! block `#[test]` stands there
    // too.
    lines[..at]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line.starts_with("#[test]") || line.contains("tokio::test"))
}

/// Compares the content that a test generates with the file of that name, which
/// `UPDATE_GENERATED=1` writes.
pub fn assert_generated(name: &str, made: &str, test: &str) {
    let file = root().join(name);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&file, made).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let have = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        have == made,
        "{name} is stale: UPDATE_GENERATED=1 cargo test --workspace --test {test} writes it; \
         what is generated now:\n{made}"
    );
}

/// Returns the path where `deploy/testing/clusters/programs/prepare` installs a program. Without
/// the program, prints why the test is skipped.
pub fn prepared(program: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let path = cache.or(home)?.join("ebs-csi/bin").join(program);
    if !path.exists() {
        println!("skipped: no {program}; ./deploy/testing/clusters/programs/prepare builds it");
        return None;
    }
    Some(path)
}
