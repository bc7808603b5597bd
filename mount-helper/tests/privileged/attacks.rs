//! Attacks that once succeeded and must not succeed again: one row for each, named as in
//! `deploy/docs/testing.md`. The attacker is a scripted agent with the agent's uid, a scripted
//! broker, or a scripted tool under the filter of the process that it replaces.
mod confinement;
mod content;
mod holders;
mod queues;
mod upkeep;

use crate::rig::{crate_directory, sources};
use std::collections::BTreeSet;

/// Prints a row of the table: the attempt, and its required result.
pub(crate) fn row(id: &str, tried: &str, happened: &str) {
    println!("attack | {id} | {tried} | {happened}");
}

/// Returns whether the kernel refuses writes to the disk of this name.
fn is_read_only(name: &str) -> bool {
    let file = format!("/sys/class/block/{name}/ro");
    std::fs::read_to_string(file).expect("ro").trim() == "1"
}

/// Compares the table in `deploy/docs/testing.md` with the rows that these tests print.
#[test]
fn documented_attack_table_matches_printed_rows() {
    let page = crate_directory().join("../deploy/docs/testing.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let listed: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| N")?.split(' ').next())
        .map(|number| format!("N{number}"))
        .collect();
    let mut printed = BTreeSet::new();
    for text in sources("tests/privileged/attacks") {
        let strings = text.split('"').skip(1).step_by(2);
        printed.extend(strings.filter(|word| is_row(word)).map(str::to_owned));
    }
    assert!(!printed.is_empty());
    assert_eq!(listed, printed);
}

fn is_row(word: &str) -> bool {
    let digits = word.strip_prefix('N').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
