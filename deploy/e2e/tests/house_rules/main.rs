//! Rules of the repository that a contributor would otherwise have to remember.

mod cycles;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns this crate's directory as cargo names it when the test runs. `env!` would be wrong: a
/// target directory kept between checkouts would hold the directory of another checkout.
fn crate_directory() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo").into()
}

fn root() -> PathBuf {
    crate_directory().join("../..")
}

/// Returns the files under version control with one of these endings; none in an export without
/// git.
fn tracked(endings: &[&str]) -> Vec<PathBuf> {
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

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_default()
}

fn is_generated(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "gen")
}

#[test]
fn unsafe_code_is_allowed_only_for_sys_modules() {
    let window = concat!("allow(", "unsafe_code)");
    for path in tracked(&[".rs"]) {
        if read(&path).contains(window) {
            // Unsafe code may be allowed in `sys.rs` itself or where the module is declared.
            let text = read(&path);
            let declares = text.lines().any(|line| line.trim_end().ends_with("mod sys;"));
            assert!(
                path.ends_with("sys.rs") || declares,
                "{} opens unsafe code outside sys.rs",
                path.display()
            );
        }
    }
}

#[test]
fn no_rust_file_has_generic_name() {
    let banned = ["util", "utils", "common", "helpers", "misc", "manager", "mod", "types", "base"];
    for path in tracked(&[".rs"]) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // A module that several test binaries share must be tests/NAME/mod.rs; cargo would take
        // another file for a test of its own.
        let shared_test = stem == "mod" && path.components().any(|c| c.as_os_str() == "tests");
        assert!(
            shared_test || !banned.contains(&stem.as_str()),
            "{}: name it after what it does",
            path.display()
        );
    }
}

#[test]
fn no_rust_file_contains_unfinished_markers() {
    let marks = ["todo!(", "unimplemented!(", "FIXME", "XXX:"];
    for path in tracked(&[".rs"]).into_iter().filter(|p| !is_generated(p)) {
        if path.ends_with("house_rules/main.rs") {
            continue;
        }
        let text = read(&path);
        for mark in marks {
            assert!(!text.contains(mark), "{} contains {mark}", path.display());
        }
    }
}

#[test]
fn scripts_are_executable_and_stop_at_errors() {
    for path in tracked(&[
        "deploy/test",
        "deploy/setup",
        "deploy/mutants",
        "sandbox/demo",
        "sandbox/up",
        "bench/run",
        ".ci/run",
    ]) {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(root().join(&path)).expect("metadata").permissions().mode();
        assert!(mode & 0o111 != 0, "{} is not executable", path.display());
        assert!(read(&path).contains("set -"), "{} does not set its error mode", path.display());
    }
}

#[test]
fn commands_that_the_readme_names_exist() {
    for path in tracked(&["README.md"]) {
        let text = read(&path);
        for word in text.split(|c: char| c.is_whitespace() || "`()[],;".contains(c)) {
            if let Some(name) = word.strip_prefix("./deploy/") {
                let name = name.trim_end_matches(['.', ':']);
                assert!(
                    root().join("deploy").join(name).exists(),
                    "{} names ./deploy/{name}, which does not exist",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn no_source_file_bakes_in_cargo_manifest_dir() {
    // CI keeps the target directory between checkouts, and cargo considers the binary of another
    // checkout up to date.
    let baked = concat!("env!(", "\"CARGO_MANIFEST_DIR\")");
    for path in tracked(&[".rs"]) {
        assert!(
            !read(&path).contains(baked),
            "{}: ask std::env for CARGO_MANIFEST_DIR when the test runs",
            path.display()
        );
    }
}

#[test]
fn links_between_pages_lead_to_files() {
    for page in tracked(&[".md"]) {
        let text = read(&page);
        let directory = root().join(page.parent().unwrap_or(Path::new("")));
        for link in text.split("](").skip(1) {
            let target = link.split([')', ' ']).next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") {
                let shown = page.display();
                assert!(directory.join(file).exists(), "{shown}: no {file}");
            }
        }
    }
}

#[test]
fn rust_files_named_in_markdown_exist() {
    let folders = ["controller", "deploy", "mount-helper", "node-agent", "policy", "proto"];
    for page in tracked(&[".md"]) {
        for quoted in read(&page).split('`').skip(1).step_by(2) {
            let name = quoted.split("::").next().unwrap_or_default();
            let is_path = folders.iter().any(|folder| {
                let rest = name.strip_prefix(folder);
                rest.is_some_and(|rest| rest.starts_with('/'))
            });
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if is_path && is_plain && name.ends_with(".rs") {
                let shown = page.display();
                assert!(root().join(name).exists(), "{shown} names {name}");
            }
        }
    }
}

/// Every `F12`, `S3` or `L4` in the code and the pages about safe detach has a row in
/// failure-scenarios.md.
#[test]
fn cited_scenarios_are_defined() {
    let places = [
        "controller/safe-detach",
        "controller/node-lifecycle",
        "deploy/docs/safe-detach.md",
        "deploy/docs/node-lifecycle.md",
    ];
    let page = read(Path::new("deploy/docs/failure-scenarios.md"));
    for path in tracked(&[".rs", ".md"]) {
        if !places.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        let text = read(&path);
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let number = word.strip_prefix(['F', 'S', 'L']).unwrap_or_default();
            if matches!(number.len(), 1 | 2) && number.bytes().all(|c| c.is_ascii_digit()) {
                let row = format!("\n| {word} |");
                assert!(page.contains(&row), "{}: {word}", path.display());
            }
        }
    }
}

#[test]
fn no_file_cites_external_design_document() {
    let phrase = concat!("the ", "design");
    for path in tracked(&[".rs", ".md", ".toml", ".yaml", ".py"]) {
        let text = read(&path).to_lowercase();
        let cites = text
            .split(phrase)
            .skip(1)
            .any(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
        assert!(!cites, "{} cites {phrase}", path.display());
    }
}

/// A kept result holds the command that made it, with its arguments.
#[test]
fn pages_and_results_name_no_home_directory() {
    for path in tracked(&[".md", ".json"]) {
        let text = read(&path);
        for home in [" /root/", "\"/root/", " /home/", "\"/home/"] {
            assert!(!text.contains(home), "{} contains {home}", path.display());
        }
    }
}

/// The most words of a test's name.
const WORDS: usize = 8;

#[test]
fn test_names_have_at_most_8_words() {
    for path in tracked(&[".rs"]) {
        let text = read(&path);
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            let Some(name) = function.and_then(|rest| rest.split('(').next()) else { continue };
            let words = name.split('_').count();
            let shown = path.display();
            assert!(!is_test || words <= WORDS, "{shown}: {name} has {words} words");
            is_test = false;
        }
    }
}

/// The most columns of a comment and of a page's prose.
const COLUMNS: usize = 100;

#[test]
fn comments_and_pages_end_at_column_100() {
    let is_long = |line: &str| line.chars().count() > COLUMNS;
    for path in tracked(&[".rs"]).into_iter().filter(|p| !is_generated(p)) {
        for (at, line) in read(&path).lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            assert!(!is_comment || !is_long(line), "{}:{}", path.display(), at + 1);
        }
    }
    for path in tracked(&[""]) {
        for (at, line) in read(&path).lines().enumerate() {
            let is_comment = line.trim_start().starts_with("# ");
            let shown = path.display();
            assert!(!is_comment || !is_long(line), "{shown}:{}", at + 1);
        }
    }
    // Generated from measurements.
    let pages = tracked(&[".md"]).into_iter().filter(|p| !p.ends_with("performance.md"));
    for path in pages {
        let mut is_code = false;
        for (at, line) in read(&path).lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            let is_table = line.trim_start().starts_with('|');
            let is_prose = !is_code && !is_table && !line.starts_with("    ");
            // A link cannot be broken.
            let breaks = line.trim().contains(' ');
            let shown = path.display();
            assert!(!is_prose || !breaks || !is_long(line), "{shown}:{}", at + 1);
        }
    }
}

/// The most source files of one folder.
const FILES: usize = 15;

#[test]
fn folders_hold_at_most_15_source_files() {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for path in tracked(&[".rs"]) {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        *folders.entry(folder).or_default() += 1;
    }
    for (folder, files) in folders {
        assert!(files <= FILES, "{} holds {files} files", folder.display());
    }
}

#[test]
fn modules_import_each_other_without_cycles() {
    for manifest in tracked(&["Cargo.toml"]) {
        let folder = root().join(&manifest).with_file_name("src");
        if folder.is_dir() {
            let cycle = cycles::first(&folder);
            assert_eq!(cycle, None, "{}", manifest.display());
        }
    }
}

/// The fuzz targets include files of other crates.
#[test]
fn each_declared_dependency_is_named_in_code() {
    let (manifests, sources) = (tracked(&["Cargo.toml"]), tracked(&[".rs"]));
    let folder = |manifest: &Path| manifest.parent().unwrap_or(Path::new("")).to_owned();
    for manifest in manifests.iter().filter(|path| !folder(path).ends_with("fuzz")) {
        let crates_beneath = manifests.iter().map(|path| folder(path));
        let beneath: Vec<PathBuf> = crates_beneath
            .filter(|other| *other != folder(manifest) && other.starts_with(folder(manifest)))
            .collect();
        let mut code = String::new();
        for path in &sources {
            let is_its = path.starts_with(folder(manifest));
            if is_its && !beneath.iter().any(|other| path.starts_with(other)) {
                code += &read(path);
            }
        }
        let words: BTreeSet<&str> =
            code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let parsed: toml::Table = read(manifest).parse().expect("TOML");
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let table = parsed.get(kind).and_then(toml::Value::as_table);
            for name in table.into_iter().flat_map(toml::Table::keys) {
                let named = words.contains(name.replace('-', "_").as_str());
                assert!(named, "{}: nothing uses {name}", manifest.display());
            }
        }
    }
}
