//! The auditor's answers: one for each rule of a profile.

use std::fmt;

use ebs_csi_policy::profile::Profile;

/// What a live process was found to be, by one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The kernel shows what the rule says.
    Conforms,
    /// The kernel shows something else.
    Deviates,
    /// The kernel shows this in general, but did not for this process.
    NotSeen,
    /// The kernel shows this to nobody but the process itself.
    NeverSeen,
}

impl Verdict {
    /// Returns the words of the reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conforms => "conforms",
            Self::Deviates => "deviates",
            Self::NotSeen | Self::NeverSeen => "cannot be seen",
        }
    }
}

/// The answer to one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The profile of the rule, or [`Answer::MACHINE`].
    pub of: &'static str,
    /// The rule's name within its profile: `capabilities`.
    pub rule: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// What the profile says.
    pub expected: String,
    /// What the kernel shows, or why it shows nothing.
    pub found: String,
    /// Where this was read.
    pub evidence: String,
}

impl Answer {
    /// Stands for a profile in rules about all processes of a machine.
    pub const MACHINE: &'static str = "machine";

    /// Returns the rule's identifier: `broker/capabilities`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.of, self.rule)
    }

    pub(crate) fn new(
        profile: &Profile,
        rule: &'static str,
        verdict: Verdict,
        found: impl AsRef<str>,
        evidence: impl Into<String>,
    ) -> Self {
        Self {
            of: profile.name,
            rule,
            verdict,
            expected: crate::rules::expected(rule, profile),
            found: printable(found.as_ref()),
            // What was collected elsewhere may say where the node's namespaces were read.
            evidence: printable(&evidence.into()),
        }
    }

    /// Returns the answer to a rule about what must not be there: it conforms when nothing was
    /// found.
    pub(crate) fn of_findings(
        profile: &Profile,
        rule: &'static str,
        wrong: &[String],
        right: impl Into<String>,
        evidence: impl Into<String>,
    ) -> Self {
        if wrong.is_empty() {
            return Self::new(profile, rule, Verdict::Conforms, right.into(), evidence);
        }
        Self::new(profile, rule, Verdict::Deviates, listed(wrong), evidence)
    }
}

/// The most findings of one answer that are written out.
const MOST_FINDINGS: usize = 16;

fn listed(findings: &[String]) -> String {
    let shown = findings.iter().take(MOST_FINDINGS).map(String::as_str).collect::<Vec<_>>();
    match findings.len().checked_sub(MOST_FINDINGS) {
        None | Some(0) => shown.join("; "),
        Some(more) => format!("{}; and {more} more", shown.join("; ")),
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, expected, found, .. } = self;
        write!(f, "{} {}: expected {expected}, found {found}", self.id(), verdict.as_str())
    }
}

/// The most characters of a text that a process chose.
const MOST_CHARACTERS: usize = 400;

/// Returns a text in one line without control characters, cut where it is long. A process chooses
/// the bytes of its name, its arguments and its file names.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == MOST_CHARACTERS {
            shown += "…";
            break;
        }
        // Characters that change the direction of a line, or show nothing, could hide what follows.
        let is_hidden = character.is_control()
            || matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if is_hidden {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns the exit status of these answers: 1 when a rule is known to be broken, whatever else was
/// not seen; 2 when something was not seen that the kernel shows in general.
#[must_use]
pub fn status<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> u8 {
    let mut status = 0;
    for answer in answers {
        match answer.verdict {
            Verdict::Conforms | Verdict::NeverSeen => {}
            Verdict::Deviates => return 1,
            Verdict::NotSeen => status = 2,
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::profile;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_shown_without_control(text in ".{0,40}[\u{0}-\u{1f}\u{7f}-\u{9f}\u{202a}-\u{202e}]?.{0,600}") {
            let shown = printable(&text);
            let is_hidden = |one: char| one.is_control() || ('\u{202a}'..='\u{202e}').contains(&one);
            prop_assert!(!shown.chars().any(is_hidden));
            prop_assert!(shown.chars().count() <= 10 * (MOST_CHARACTERS + 1));
        }
    }

    fn answer(verdict: Verdict) -> Answer {
        Answer::new(profile::BROKER, "user", verdict, "0", "")
    }

    #[test]
    fn deviation_outweighs_unseen_in_status() {
        use Verdict::{Conforms, Deviates, NeverSeen, NotSeen};
        for (verdicts, expected) in [
            (&[][..], 0),
            (&[Conforms, NeverSeen], 0),
            (&[NotSeen, Conforms], 2),
            (&[NotSeen, Deviates, NotSeen], 1),
        ] {
            let answers: Vec<_> = verdicts.iter().copied().map(answer).collect();
            assert_eq!(status(&answers), expected, "{verdicts:?}");
        }
    }

    #[test]
    fn text_of_process_stays_in_one_line() {
        assert_eq!(printable("a\nb\x1b[2J\u{202e}c"), r"a\u{a}b\u{1b}[2J\u{202e}c");
        let long = printable(&"x".repeat(1 << 20));
        assert_eq!(long.chars().count(), MOST_CHARACTERS + 1);
        assert_eq!(printable("größe \u{fffd}"), "größe \u{fffd}");
        let shown = Answer::new(profile::BROKER, "user", Verdict::Conforms, "\n", "\u{1b}");
        assert_eq!((&*shown.found, &*shown.evidence), (r"\u{a}", r"\u{1b}"));
    }

    #[test]
    fn long_lists_of_findings_are_cut() {
        let wrong: Vec<_> = (0..40).map(|number| number.to_string()).collect();
        let answer = Answer::of_findings(profile::BROKER, "files", &wrong, "", "");
        assert!(answer.found.ends_with("15; and 24 more"), "{answer}");
        assert_eq!(answer.id(), "broker/files");
    }
}
