//! `deploy/docs/compatibility.md`: what a user of the Go driver can rely on, each line with the
//! tests that show it.
//!
//! `compatibility.toml` beside the page holds the rows. This test fails when a row's test does not
//! exist, or when the page differs from the rows.
//! `UPDATE_GENERATED=1 cargo test -p ebs-csi-e2e --test compatibility` writes the page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ebs_csi_e2e::repository::{assert_generated, read, root};
use serde::Deserialize;

/// The page's rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    part: Vec<Part>,
}

/// One heading of the page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    title: String,
    row: Vec<Promise>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Promise {
    /// What a user can rely on.
    promise: String,
    /// `same`, `better` (a defect of the Go driver that is fixed here), `left out` (refused on
    /// purpose, with an ADR that gives the reason) or `not yet`.
    against: Against,
    /// `path/of/file.rs::name_of_the_test`, or a scenario's file and its function.
    #[serde(default)]
    tests: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum Against {
    #[serde(rename = "same")]
    Same,
    #[serde(rename = "better")]
    Better,
    #[serde(rename = "left out")]
    LeftOut,
    #[serde(rename = "not yet")]
    NotYet,
}

impl Against {
    const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::LeftOut => "left out",
            Self::NotYet => "not yet",
        }
    }
}

fn page() -> Page {
    toml::from_str(&read("deploy/docs/compatibility.toml"))
        .expect("compatibility.toml has the page's shape")
}

/// Returns whether the file has a test function of that name.
fn is_a_test(file: &str, name: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(root().join(file)) else { return false };
    // The scenarios on real kubelets.
    if file.starts_with("deploy/e2e/kubernetes/scenarios/") {
        return text.lines().any(|line| line == format!("def {name}(rig):"));
    }
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    }) else {
        return false;
    };
    // The function's attributes stand above it; inside a proptest! block `#[test]` stands there
    // too.
    lines[..at]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line.starts_with("#[test]") || line.contains("tokio::test"))
}

#[test]
fn every_compatibility_promise_cites_existing_tests() {
    let mut promises = BTreeSet::new();
    for row in page().part.into_iter().flat_map(|part| part.row) {
        assert!(promises.insert(row.promise.clone()), "twice: {}", row.promise);
        assert_eq!(
            row.tests.is_empty(),
            row.against == Against::NotYet,
            "{}: a promise has a test, a gap has none",
            row.promise
        );
        for test in &row.tests {
            let (file, name) =
                test.split_once("::").unwrap_or_else(|| panic!("{test}: path/of/file.rs::name"));
            assert!(is_a_test(file, name), "{}: no test {test}", row.promise);
        }
    }
    assert!(!is_a_test("deploy/e2e/tests/compatibility.rs", "root"));
}

#[test]
fn compatibility_page_matches_its_rows() {
    assert_generated("deploy/docs/compatibility.md", &render(&page()), "compatibility");
}

fn render(page: &Page) -> String {
    let mut out = String::from(
        "# Compatibility with the Go driver\n\n\
         What a user of `aws-ebs-csi-driver` v1.64 can rely on, and the tests that show it. *same*: the\n\
         same behaviour. *better*: a defect of that driver is fixed here, or that driver lacks the\n\
         feature. *left out*: refused on purpose, with the reason. *not yet*: a known gap. Key by key, for\n\
         classes: [parameters](parameters.md).\n\n\
         Generated from `compatibility.toml` by `UPDATE_GENERATED=1 cargo test -p ebs-csi-e2e --test\n\
         compatibility`; `./deploy/test` fails when a test named here does not exist.\n",
    );
    let count = |against| {
        page.part.iter().flat_map(|part| &part.row).filter(|row| row.against == against).count()
    };
    let _ = writeln!(
        out,
        "\n{} same, {} better, {} left out, {} not yet.",
        count(Against::Same),
        count(Against::Better),
        count(Against::LeftOut),
        count(Against::NotYet)
    );
    for part in &page.part {
        let _ = write!(
            out,
            "\n## {}\n\n| what | against the Go driver | shown by |\n|---|---|---|\n",
            part.title
        );
        for row in &part.row {
            let tests: Vec<_> = row
                .tests
                .iter()
                .map(|test| {
                    let (file, name) = test.split_once("::").unwrap_or((test, ""));
                    format!("[`{name}`](../../{file})")
                })
                .collect();
            let _ = writeln!(
                out,
                "| {} | {} | {} |",
                row.promise.replace('|', "\\|"),
                row.against.word(),
                tests.join(", ")
            );
        }
    }
    out
}
