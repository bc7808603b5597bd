//! What pages cite exists: paths, headings, folders, numbers.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ebs_csi_e2e::repository::{beneath, entries, quoted};

use crate::{read, root};

/// Returns the pages of `deploy/docs` and `deploy/install/examples`, and the repository's README.
fn pages() -> Vec<(PathBuf, String)> {
    let folders = ["deploy/docs", "deploy/install/examples"];
    let paths = folders.into_iter().flat_map(|folder| beneath(folder, "md"));
    let pages = paths.chain([root().join("README.md")]).map(|path| {
        let text = std::fs::read_to_string(&path).expect("a page");
        (path, text)
    });
    pages.collect()
}

/// Returns the anchors that GitHub gives to a page's headings, and those that the page sets.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let of_headings = headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    });
    let set = text.split("<a id=\"").skip(1);
    let set = set.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    of_headings.chain(set).collect()
}

#[test]
fn links_to_headings_lead_to_headings() {
    let mut seen = 0;
    for (path, text) in pages() {
        let directory = path.parent().expect("a folder");
        for link in text.split("](").skip(1) {
            let target = link.split([')', ' ']).next().unwrap_or_default();
            let Some((file, anchor)) = target.split_once('#') else { continue };
            if file.contains("://") {
                continue;
            }
            let page = match file {
                "" => text.clone(),
                _ => std::fs::read_to_string(directory.join(file)).expect(target),
            };
            let shown = path.display();
            assert!(anchors(&page).contains(anchor), "{shown}: no heading {target}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}

/// Covers files of any kind and folders; `commands_that_the_readme_names_exist` and
/// `rust_files_named_in_markdown_exist` cover the rest of the repository's pages.
#[test]
fn paths_in_pages_exist() {
    let folders = ["controller/", "deploy/", "mount-helper/", "node-agent/", "policy/", "proto/"];
    let mut seen = 0;
    for (path, text) in pages() {
        let words = text.split(|c: char| c.is_whitespace() || "`()[],;|".contains(c));
        for word in words {
            let word = word.trim_start_matches("./").trim_end_matches(['.', ':']);
            let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if is_plain && folders.iter().any(|folder| word.starts_with(folder)) {
                let shown = path.display();
                assert!(root().join(word).exists(), "{shown} names {word}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 50, "{seen}");
}

#[test]
fn decisions_are_numbered_without_holes() {
    let names = entries("deploy/docs/adr").into_iter().map(|(name, _)| name);
    let numbers: Vec<usize> = names
        .map(|name| {
            let number = name.split('-').next().and_then(|it| it.parse().ok());
            number.unwrap_or_else(|| panic!("{name}: NUMBER-title.md"))
        })
        .collect();
    let expected: Vec<usize> = (1..=numbers.len()).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn index_names_each_folder_of_deploy() {
    let index = read("deploy/docs/README.md");
    let row = index.lines().find(|line| line.starts_with("| `deploy/` |"));
    let row = row.expect("the row of deploy/");
    for (name, path) in entries("deploy") {
        if path.is_dir() {
            assert!(row.contains(&format!("`{name}/`")), "deploy/{name}");
        }
    }
}

/// Each page of `deploy/docs`, so that a reader finds it.
#[test]
fn index_links_to_each_page() {
    let index = read("deploy/docs/README.md");
    for (name, _) in entries("deploy/docs") {
        if name.ends_with(".md") && name != "README.md" {
            assert!(index.contains(&format!("]({name})")), "no link to {name}");
        }
    }
}

#[test]
fn matrix_names_sidecars_that_rig_builds() {
    let matrix = read("deploy/docs/compatibility-matrix.md");
    let folder = "deploy/testing/clusters/programs";
    let modules =
        ["go.mod", "snapshots/go.mod"].map(|file| read(&format!("{folder}/{file}"))).concat();
    for name in ["provisioner", "attacher", "resizer", "snapshotter"] {
        let path = format!("github.com/kubernetes-csi/external-{name}/v");
        let mut lines = modules.lines().map(str::trim).filter(|line| line.starts_with(&path));
        let version = lines.find_map(|line| line.split(' ').nth(1)).expect(name);
        let row = format!("| external-{name} {version}");
        assert!(matrix.contains(&row), "compatibility-matrix.md has no row {row}");
    }
}

/// Covers text in backticks and arguments of `--set`; the roots are the chart's maps.
#[test]
fn values_that_pages_name_are_keys_of_chart() {
    let table = read("deploy/docs/configuration.md");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let keys = rows.filter_map(|row| Some(row.split_once('`')?.0));
    // The page has one row for a key that all sidecars have.
    let sidecars = ["attacher", "provisioner", "resizer", "snapshotter", "volumemodifier"];
    let keys: BTreeSet<String> =
        keys.flat_map(|key| sidecars.map(|name| key.replacen("NAME", name, 1))).collect();
    let maps: BTreeSet<&str> = keys.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    let is_key = |name: &str| {
        let above = |one: &str, other: &str| {
            let rest = one.strip_prefix(other);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        keys.iter().any(|key| above(key, name) || above(name, key))
    };
    assert!(is_key("node.helper") && !is_key("node.help") && !is_key("node.kubeletPaths"));
    let mut seen = 0;
    for (path, text) in pages() {
        // These pages name packages and fields of objects.
        if path.components().any(|part| part.as_os_str() == "adr") {
            continue;
        }
        let set = text.split("--set ").skip(1);
        for word in quoted(&text).chain(set) {
            let name = word.split([' ', '=', ':', '`', '\n']).next().unwrap_or_default();
            // `sidecars.NAME.image` stands for several keys.
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
                && !name.contains("NAME");
            let map = name.split_once('.').map(|(map, _)| map);
            if is_plain && map.is_some_and(|map| maps.contains(map)) {
                let file = name.ends_with(".rs") || name.ends_with(".yaml");
                let shown = path.display();
                assert!(file || is_key(name), "{shown}: {name} is no key");
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "{seen}");
}
