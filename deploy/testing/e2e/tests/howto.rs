//! Checks that the pages of `deploy/docs/howto` name existing files and count the files of their
//! lists correctly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ebs_csi_e2e::repository::{quoted, root, texts, tracked};

fn pages() -> BTreeMap<String, String> {
    let pages = texts("deploy/docs/howto", ".md");
    assert!(pages.len() >= 4, "{} pages", pages.len());
    pages
}

/// Returns whether a word has a slash and a last part with an extension.
fn is_path(word: &str) -> bool {
    let Some((_, name)) = word.rsplit_once('/') else { return false };
    name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && !extension.is_empty()
            && extension.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// Returns the paths in the second cell of each numbered row of the page's tables.
fn listed(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        cells.next()?.parse::<u32>().ok()?;
        cells.next()
    });
    rows.flat_map(quoted).collect()
}

#[test]
fn every_path_that_a_page_names_exists() {
    for (name, text) in pages() {
        // Text outside and inside of backticks alternates, and the last piece is outside.
        assert_eq!(text.split('`').count() & 1, 1, "{name}: odd backticks");
        let words = quoted(&text).flat_map(str::split_whitespace);
        let paths: BTreeSet<_> = words.filter(|word| is_path(word)).collect();
        assert!(!paths.is_empty(), "{name} names no path");
        for path in paths {
            assert!(root().join(path).is_file(), "{name} names {path}");
        }
    }
    assert!(!is_path("aws:RequestTag/owner") && !is_path("deploy/testing/e2e/tests/"));
}

#[test]
fn stated_file_count_matches_file_list() {
    for (name, text) in pages() {
        let stated = text.lines().find_map(|line| line.strip_prefix("Files: "));
        let stated: Option<usize> = stated.and_then(|count| count.parse().ok());
        let listed = listed(&text);
        for path in &listed {
            assert!(is_path(path), "{name} lists {path}");
        }
        assert_eq!(stated, Some(listed.len()), "{name}");
    }
}

/// Returns whether a word is the name of a function or a path to an item: `from_volume_context` or
/// `Action::ALL`. Flags, keys and paths of files are not.
fn is_item(word: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let name = word.trim_end_matches("()").trim_end_matches('!');
    let is_function = name.contains('_') && name.chars().any(|c| c.is_ascii_lowercase());
    name.split("::").all(is_name) && (is_function || name.contains("::"))
}

#[test]
fn every_function_that_a_page_names_exists() {
    let text = |path: &PathBuf| std::fs::read_to_string(root().join(path)).expect("a source");
    let sources: String = tracked(&[".rs"]).iter().map(text).collect();
    let words = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map(str::to_owned).collect()
    };
    let known = words(&sources);
    let mut named = 0;
    for (page, text) in pages() {
        for item in quoted(&text).flat_map(str::split_whitespace).filter(|word| is_item(word)) {
            for part in words(item).iter().filter(|part| !part.is_empty()) {
                assert!(known.contains(part), "{page} names {item}");
            }
            named += 1;
        }
    }
    assert!(named >= 5, "{named}");
    assert!(is_item("Action::ALL") && is_item("create_volume()") && !is_item("no-such-flag"));
}
