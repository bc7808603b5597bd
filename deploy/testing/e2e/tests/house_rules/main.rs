//! Rules of the repository that a contributor would otherwise have to remember.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use ebs_csi_e2e::repository::{quoted, root, tracked};

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_default()
}

/// Passes to `check` each file with one of these endings: its path, also as text, and its content.
fn each(endings: &[&str], mut check: impl FnMut(&Path, &str, &str)) {
    for path in tracked(endings) {
        check(&path, &path.display().to_string(), &read(&path));
    }
}

fn is_generated(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "gen")
}

#[test]
fn unsafe_code_is_allowed_only_for_sys_modules() {
    let permission = concat!("allow(", "unsafe_code)");
    each(&[".rs"], |path, shown, text| {
        // Unsafe code may be allowed in `sys.rs` itself or where the module is declared.
        let declares = text.lines().any(|line| line.trim_end().ends_with("mod sys;"));
        let is_sys = path.ends_with("sys.rs") || declares;
        assert!(is_sys || !text.contains(permission), "{shown} allows unsafe code outside sys.rs");
    });
}

#[test]
fn no_rust_file_has_generic_name() {
    let banned = ["util", "utils", "common", "helpers", "misc", "manager", "mod", "types", "base"];
    for path in tracked(&[".rs"]) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        // A module that several test binaries share must be tests/NAME/mod.rs; cargo would take
        // another file for a test of its own.
        let shared_test = stem == "mod" && path.components().any(|c| c.as_os_str() == "tests");
        let is_specific = shared_test || !banned.contains(&&*stem);
        assert!(is_specific, "{}: name it after what it does", path.display());
    }
}

#[test]
fn no_rust_file_contains_unfinished_markers() {
    let marks = ["todo!(", "unimplemented!(", "FIXME", "XXX:"];
    each(&[".rs"], |path, shown, text| {
        let is_exempt = is_generated(path) || path.ends_with("house_rules/main.rs");
        let mark = marks.iter().find(|mark| text.contains(*mark));
        assert!(is_exempt || mark.is_none(), "{shown} contains {mark:?}");
    });
}

#[test]
fn scripts_are_executable_and_stop_at_errors() {
    use std::os::unix::fs::PermissionsExt;
    let scripts = ["deploy/test", "deploy/setup", "deploy/testing/mutants", ".ci/run"];
    let scripts = [&scripts[..], &["sandbox/demo", "sandbox/up", "testing/bench/run"]].concat();
    each(&scripts, |path, shown, text| {
        let mode = std::fs::metadata(root().join(path)).expect("metadata").permissions().mode();
        assert!(mode & 0o111 != 0, "{shown} is not executable");
        assert!(text.contains("set -"), "{shown} does not set its error mode");
    });
}

#[test]
fn commands_that_the_readme_names_exist() {
    each(&["README.md"], |_, shown, text| {
        for word in text.split(|c: char| c.is_whitespace() || "`()[],;".contains(c)) {
            let Some(name) = word.strip_prefix("./deploy/") else { continue };
            let command = root().join("deploy").join(name.trim_end_matches(['.', ':']));
            assert!(command.exists(), "{shown} names {word}, which does not exist");
        }
    });
}

#[test]
fn no_source_file_bakes_in_cargo_manifest_dir() {
    // CI keeps the target directory between checkouts, and cargo considers the binary of another
    // checkout up to date.
    let baked = concat!("env!(", "\"CARGO_MANIFEST_DIR\")");
    each(&[".rs"], |_, shown, text| {
        let is_baked = text.contains(baked);
        assert!(!is_baked, "{shown}: read CARGO_MANIFEST_DIR by std::env when the test runs");
    });
}

#[test]
fn links_between_pages_lead_to_files() {
    each(&[".md"], |page, shown, text| {
        let directory = root().join(page.parent().unwrap_or(Path::new("")));
        for link in text.split("](").skip(1) {
            let target = link.split([')', ' ']).next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            let is_file = !file.is_empty() && !file.contains("://");
            assert!(!is_file || directory.join(file).exists(), "{shown}: no {file}");
        }
    });
}

#[test]
fn rust_files_named_in_markdown_exist() {
    let folders = ["controller", "deploy", "mount-helper", "node-agent", "policy", "proto"];
    each(&[".md"], |_, shown, text| {
        for quoted in quoted(text) {
            let name = quoted.split("::").next().unwrap_or_default();
            let folder = name.split_once('/').map_or("", |(folder, _)| folder);
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if folders.contains(&folder) && is_plain && name.ends_with(".rs") {
                assert!(root().join(name).exists(), "{shown} names {name}");
            }
        }
    });
}

/// `deploy/testing/mutants` takes hours, and so runs by hand.
#[test]
fn files_and_functions_of_mutants_exist() {
    let script = read(Path::new("deploy/testing/mutants"));
    let parts = script.lines().filter(|line| line.starts_with("part "));
    let files: Vec<_> = parts.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(files.len() > 10, "{files:?}");
    let mut list = Command::new("bash");
    list.args(["-c", &format!("ls -d {}", files.join(" "))]).current_dir(root());
    let listed = list.output().expect("bash");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));

    let listed = String::from_utf8_lossy(&listed.stdout);
    let survivors = read(Path::new("deploy/testing/mutants.txt"));
    for line in survivors.lines().filter(|line| !line.starts_with('#')) {
        let (file, mutant) = line.split_once(": ").expect("a file");
        assert!(listed.lines().any(|known| known == file), "{file}");
        let mutant = mutant.split(" # ").next().unwrap_or_default();
        if let Some((_, function)) = mutant.rsplit_once(" in ") {
            let name = function.rsplit("::").next().unwrap_or_default();
            let is_there = read(Path::new(file)).contains(&format!("fn {name}"));
            assert!(is_there, "{file} has no {function}");
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
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let defined: BTreeSet<&str> = rows.flat_map(|cell| cell.split(", ")).collect();
    each(&[".rs", ".md"], |path, shown, text| {
        if !places.iter().any(|place| path.starts_with(place)) {
            return;
        }
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let number = word.strip_prefix(['F', 'S', 'L']).unwrap_or_default();
            if matches!(number.len(), 1 | 2) && number.bytes().all(|c| c.is_ascii_digit()) {
                assert!(defined.contains(word), "{shown}: {word}");
            }
        }
    });
}

#[test]
fn no_file_cites_external_design_document() {
    let phrase = concat!("the ", "design");
    each(&[".rs", ".md", ".toml", ".yaml", ".py"], |_, shown, text| {
        let text = text.to_lowercase();
        let mut rests = text.split(phrase).skip(1);
        let cites = rests.any(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
        assert!(!cites, "{shown} cites {phrase}");
    });
}

/// A kept result holds the command that made it, with its arguments.
#[test]
fn pages_and_results_name_no_home_directory() {
    each(&[".md", ".json"], |_, shown, text| {
        for home in [" /root/", "\"/root/", " /home/", "\"/home/"] {
            assert!(!text.contains(home), "{shown} contains {home}");
        }
    });
}

/// The most words of a test's name.
const WORDS: usize = 8;

#[test]
fn test_names_have_at_most_8_words() {
    each(&[".rs"], |_, shown, text| {
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            let Some(name) = function.and_then(|rest| rest.split('(').next()) else { continue };
            let words = name.split('_').count();
            assert!(!is_test || words <= WORDS, "{shown}: {name} has {words} words");
            is_test = false;
        }
    });
}

/// The most columns of a comment and of a page's prose.
const COLUMNS: usize = 100;

#[test]
fn comments_and_pages_end_at_column_100() {
    let is_long = |line: &str| line.chars().count() > COLUMNS;
    each(&[""], |path, shown, text| {
        let is_rust = path.extension().is_some_and(|it| it == "rs") && !is_generated(path);
        // performance.md is generated from measurements.
        let is_page =
            path.extension().is_some_and(|it| it == "md") && !path.ends_with("performance.md");
        let mut is_code = false;
        for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
            let start = line.trim_start();
            is_code ^= start.starts_with("```");
            let is_comment = start.starts_with("# ") || (is_rust && start.starts_with("//"));
            // A link cannot be broken, and a table may be longer.
            let is_prose = is_page
                && !(is_code || start.starts_with('|') || line.starts_with("    "))
                && line.trim().contains(' ');
            assert!(!(is_comment || is_prose) || !is_long(line), "{shown}:{at}");
        }
    });
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
            let cycle = modules::first_cycle(&folder);
            assert_eq!(cycle, None, "{}", manifest.display());
        }
    }
}

/// The modules that the process with CAP_SYS_ADMIN can reach, and their lines, which `cargo test
/// --workspace --test house_rules broker_ -- --nocapture` prints.
#[test]
fn broker_reaches_no_code_parsing_disks_or_keys() {
    let reached = modules::reachable(&root().join("mount-helper/src"), &["roles", "broker"]);
    let lines: usize = reached.values().sum();
    for (module, lines) in &reached {
        println!("{lines:6} {module}");
    }
    println!("{lines:6} lines in {} modules", reached.len());
    let others = ["disk::content", "disk::reader", "disk::area_search", "roles::", "settings"];
    for module in reached.keys().filter(|module| *module != "roles::broker") {
        assert!(!others.iter().any(|other| module.starts_with(other)), "{module}");
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
