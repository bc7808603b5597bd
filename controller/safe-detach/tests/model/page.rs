//! The counts of a run, as tables of `deploy/docs/model.md`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ebs_csi_safe_detach::lifecycle::NodePhase;

use crate::explore::{Exploration, Name, join};
use crate::is_large;

/// Tests run beside each other, and each writes its own table.
static WRITING: Mutex<()> = Mutex::new(());

pub(crate) struct Row {
    what: String,
    states: usize,
    steps: usize,
    /// The broken property and the number of steps to it.
    broken: Option<(String, usize)>,
}

impl Row {
    pub(crate) fn new(what: &str, found: &Exploration) -> Self {
        let property =
            |broken: &str| broken.split([':', ',']).next().unwrap_or_default().to_owned();
        let broken = found.broken.as_ref();
        Self {
            what: what.to_owned(),
            states: found.states,
            steps: found.steps,
            broken: broken.map(|(broken, trace)| (property(broken), trace.len())),
        }
    }
}

fn page_path() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    PathBuf::from(package).join("../../deploy/docs/model.md")
}

/// Compares the table of this section with the committed one, or writes it.
pub(crate) fn check(section: &str, rows: &[Row]) {
    if !is_large() {
        check_text(section, &table(rows));
    }
}

/// Does the same for any text.
pub(crate) fn check_text(section: &str, table: &str) {
    let (begin, end) = (format!("<!-- begin {section} -->\n"), format!("<!-- end {section} -->"));
    let guard = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let page = std::fs::read_to_string(page_path()).expect("deploy/docs/model.md");
    let (head, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page lacks {begin}"));
    let (committed, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("the page lacks {end}"));
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        let page = format!("{head}{begin}{table}{end}{tail}");
        std::fs::write(page_path(), page).expect("deploy/docs/model.md");
        return;
    }
    drop(guard);
    assert_eq!(
        committed, table,
        "UPDATE_GENERATED=1 cargo test -p ebs-csi-safe-detach --test model writes {section}"
    );
}

/// Draws phases and the steps between them.
pub(crate) fn drawing(arrows: &BTreeMap<(NodePhase, NodePhase), Name>) -> String {
    let name = |phase: NodePhase| phase.label().replace('-', "_");
    let mut text = "```mermaid\nstateDiagram-v2\n".to_owned();
    for ((before, after), step) in arrows {
        let step = join(*step).replace(':', ",");
        text += &format!("    {} --> {} : {step}\n", name(*before), name(*after));
    }
    text + "```\n"
}

fn table(rows: &[Row]) -> String {
    let is_planted = rows.iter().any(|row| row.broken.is_some());
    let mut text = match is_planted {
        false => "| Scope | States | Steps |\n|---|---|---|\n".to_owned(),
        true => "| What | States | Steps | Breaks | After |\n|---|---|---|---|---|\n".to_owned(),
    };
    for Row { what, states, steps, broken } in rows {
        text += &match broken {
            Some((property, after)) => {
                format!("| {what} | {states} | {steps} | {property} | {after} steps |\n")
            }
            None if is_planted => format!("| {what} | {states} | {steps} | nothing | |\n"),
            None => format!("| {what} | {states} | {steps} |\n"),
        };
    }
    text
}
