//! The pages for operators (`deploy/docs`, `deploy/examples`): two are generated from the source,
//! and the others quote, link and cite only what exists.
//!
//! `UPDATE_GENERATED=1 cargo test --workspace --test operator_pages` writes
//! `deploy/docs/metrics.md` and `deploy/docs/events.md`.

mod citations;
mod events;
mod examples;
mod metrics;
mod quotations;
mod source;

use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo"))
        .join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Compares a generated page with the file of that name, which `UPDATE_GENERATED=1` writes.
fn assert_current(name: &str, made: &str) {
    let file = root().join(name);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&file, made).expect("the page is written");
    }
    let have = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        have == made,
        "{name} is stale: UPDATE_GENERATED=1 cargo test --workspace --test operator_pages"
    );
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
