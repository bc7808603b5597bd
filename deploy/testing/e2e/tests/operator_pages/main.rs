//! The pages for operators (`deploy/docs`, `deploy/install/examples`): three are generated from the
//! source, and the others quote, link and cite only what exists.
//!
//! `UPDATE_GENERATED=1 cargo test --workspace --test operator_pages` writes `metrics.md`,
//! `events.md` and `parameters.md` of `deploy/docs`, and the chart's `_parameters.tpl`.

mod citations;
mod events;
mod examples;
mod metrics;
mod parameters;
mod quotations;
mod source;

use ebs_csi_e2e::repository::{read, root};

/// Compares a generated page with the committed one.
fn assert_current(name: &str, made: &str) {
    ebs_csi_e2e::repository::assert_generated(name, made, "operator_pages");
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
