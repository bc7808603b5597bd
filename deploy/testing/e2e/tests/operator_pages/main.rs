//! The pages for operators (`deploy/docs`, `deploy/install/examples`): three are generated from
//! what the programs print or link, and the others quote, link and cite only what exists.
//!
//! `UPDATE_GENERATED=1 cargo test --workspace --test operator_pages` writes `metrics.md`,
//! `events.md` and `parameters.md` of `deploy/docs`, and the chart's `_parameters.tpl`.

mod blocks;
mod citations;
mod events;
mod examples;
mod metrics;
mod parameters;
mod quotations;

use std::path::{Path, PathBuf};

use ebs_csi_e2e::program::{bare, run};
use ebs_csi_e2e::repository::{read, root};
use ebs_csi_sandbox::binaries::Binaries;

/// Compares a generated page with the committed one.
fn assert_current(name: &str, made: &str) {
    ebs_csi_e2e::repository::assert_generated(name, made, "operator_pages");
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Appends the files with this ending beneath a directory, in the order of their names.
fn collect(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, ending, found);
        } else if path.extension().is_some_and(|it| it == ending) {
            found.push(path);
        }
    }
}

/// Returns the programs; `None`, after a line that says so, where one of these was not built.
fn programs(names: &[&str]) -> Option<Binaries> {
    let binaries = Binaries::of_this_build().expect("the directory of this build");
    for name in names {
        if let Err(error) = binaries.path(&format!("ebs-csi-{name}")) {
            println!("skipped: {error}");
            return None;
        }
    }
    Some(binaries)
}

/// Returns what a program prints for its arguments.
fn printed(binaries: &Binaries, name: &str, arguments: &[&str]) -> String {
    let program = binaries.path(&format!("ebs-csi-{name}")).expect("a program");
    let ended = run(bare(&program, arguments, &[]));
    assert_eq!(ended.status, Some(0), "{name}: {}", ended.stderr);
    ended.stdout
}
