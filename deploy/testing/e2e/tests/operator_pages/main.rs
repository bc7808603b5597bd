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

use ebs_csi_e2e::program::{bare, run};
use ebs_csi_e2e::repository::{read, root};
use ebs_csi_sandbox::binaries::{Binaries, built};

/// Compares a generated page with the committed one.
fn assert_current(name: &str, made: &str) {
    ebs_csi_e2e::repository::assert_generated(name, made, "operator_pages");
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Returns the programs; `None`, after a line that says so, where one of these was not built.
fn programs(names: &[&str]) -> Option<Binaries> {
    let names: Vec<String> = names.iter().map(|name| format!("ebs-csi-{name}")).collect();
    built(&names)
}

/// Returns what a program prints for its arguments.
fn printed(binaries: &Binaries, name: &str, arguments: &[&str]) -> String {
    let program = binaries.path(&format!("ebs-csi-{name}")).expect("a program");
    let ended = run(bare(&program, arguments, &[]));
    assert_eq!(ended.status, Some(0), "{name}: {}", ended.stderr);
    ended.stdout
}
