//! What was once possible and must not be again: one row for each, named as in
//! `deploy/docs/testing.md`. The peer is a scripted agent that holds the agent's uid, a scripted
//! broker, or a scripted tool that runs under the filter of the process it stands for.
mod confinement;
mod content;
mod holders;
mod queues;
mod upkeep;

use std::collections::BTreeSet;

/// Print a row of the table: what was tried, and what happened as it must.
pub(crate) fn row(id: &str, tried: &str, happened: &str) {
    println!("attack | {id} | {tried} | {happened}");
}

/// `deploy/docs/testing.md` is the table of what these tests print.
#[test]
fn documented_attack_table_matches_printed_rows() {
    let crate_directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs this");
    let crate_directory = std::path::Path::new(&crate_directory);
    let page = crate_directory.join("../deploy/docs/testing.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let listed: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| N")?.split(' ').next())
        .map(|number| format!("N{number}"))
        .collect();
    let mut printed = BTreeSet::new();
    let mut directories = vec![crate_directory.join("tests/privileged/attacks")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).expect("a source");
            let strings = text.split('"').skip(1).step_by(2);
            printed.extend(strings.filter(|word| is_row(word)).map(str::to_owned));
        }
    }
    assert!(!printed.is_empty());
    assert_eq!(listed, printed);
}

fn is_row(word: &str) -> bool {
    let digits = word.strip_prefix('N').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
