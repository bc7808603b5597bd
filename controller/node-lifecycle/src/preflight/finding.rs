//! A finding about one object, or about several with the same reason.

use std::io::{self, Write};

use serde::Serialize;

use super::Output;

const MAX_NAMES: usize = 10;

/// The consequence for an installation of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// The driver refuses the object, or cannot serve it.
    Refused,
    /// The driver ignores the object.
    Ignored,
    /// A person should know about it.
    Noted,
    /// Nothing is to be done.
    Fine,
}

impl Severity {
    const fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Ignored => "ignored",
            Self::Noted => "noted",
            Self::Fine => "fine",
        }
    }
}

/// The name has the object's namespace where it has one; several names are separated
/// by commas. `next` is empty when nothing is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    #[serde(rename = "verdict")]
    pub(crate) severity: Severity,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) says: String,
    pub(crate) next: String,
}

impl Finding {
    /// Creates the finding that a kind of object has no problem.
    pub(super) fn fine(kind: &'static str, says: String) -> Self {
        Self { severity: Severity::Fine, kind, name: String::new(), says, next: String::new() }
    }
}

/// Formats several names for a line: the first ones, and the number of the others.
pub(super) fn names(all: &[String]) -> String {
    let shown = all.iter().take(MAX_NAMES).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(",");
    match all.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    refused: usize,
    findings: &'a [Finding],
}

pub(super) fn print(findings: &[Finding], output: Output, to: &mut impl Write) -> io::Result<()> {
    let refused = findings.iter().filter(|f| f.severity == Severity::Refused);
    let refused = refused.count();
    if output == Output::Json {
        let document = Document { refused, findings };
        serde_json::to_writer_pretty(&mut *to, &document)?;
        return writeln!(to);
    }
    for finding in findings {
        writeln!(to, "{}", line(finding))?;
    }
    match refused {
        0 => writeln!(to, "nothing is refused"),
        some => writeln!(to, "refused: {some}"),
    }
}

fn line(finding: &Finding) -> String {
    let subject = match finding.name.as_str() {
        "" => finding.kind.to_owned(),
        name => format!("{}/{name}", finding.kind),
    };
    let mut line = format!("{:8} {subject}: {}", finding.severity.label(), finding.says);
    if !finding.next.is_empty() {
        line = format!("{line}; {}", finding.next);
    }
    // Text from a cluster's objects must not look like another line.
    line.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_prints_as_one_line_with_next_step() {
        let finding = Finding {
            severity: Severity::Refused,
            kind: "PersistentVolume",
            name: "pv-1".to_owned(),
            says: "two\nlines".to_owned(),
            next: "do this".to_owned(),
        };
        assert_eq!(line(&finding), "refused  PersistentVolume/pv-1: two lines; do this");
        let mut text = Vec::new();
        print(&[finding], Output::Text, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().last(), Some("refused: 1"));
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let all: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
        assert_eq!(names(&all), "n0,n1,n2,n3,n4,n5,n6,n7,n8,n9 and 2 more");
        assert_eq!(names(&all[..2]), "n0,n1");
    }
}
