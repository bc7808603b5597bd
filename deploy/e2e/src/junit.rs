//! Reads the JUnit report of csi-sanity (in Ginkgo's form).

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The case passed.
    Passed,
    /// The case was skipped, with Ginkgo's message.
    Skipped(String),
    /// The case failed, with Ginkgo's message.
    Failed(String),
}

/// One test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The full name.
    pub name: String,
    /// The result.
    pub verdict: Verdict,
}

fn attribute(tag: &BytesStart<'_>, key: &str) -> String {
    tag.attributes()
        .flatten()
        .find(|attribute| attribute.key.as_ref() == key.as_bytes())
        .and_then(|attribute| attribute.unescape_value().ok().map(|text| text.into_owned()))
        .unwrap_or_default()
}

/// Reads a report.
///
/// # Errors
/// Returns a description of what is wrong with the report's XML.
pub fn parse(xml: &str) -> Result<Vec<Case>, String> {
    let mut reader = Reader::from_str(xml);
    let mut cases: Vec<Case> = Vec::new();
    let mut in_failure = false;
    loop {
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Eof => return Ok(cases),
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"testcase" => {
                cases.push(Case { name: attribute(&tag, "name"), verdict: Verdict::Passed });
            }
            Event::Start(tag) | Event::Empty(tag)
                if matches!(tag.name().as_ref(), b"failure" | b"error") =>
            {
                in_failure = true;
                set(&mut cases, Verdict::Failed(attribute(&tag, "message")));
            }
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"skipped" => {
                set(&mut cases, Verdict::Skipped(attribute(&tag, "message")));
            }
            Event::Text(text) if in_failure => {
                if let Some(Case { verdict: Verdict::Failed(words), .. }) = cases.last_mut() {
                    words.push('\n');
                    words.push_str(&String::from_utf8_lossy(&text));
                }
            }
            Event::End(tag) if matches!(tag.name().as_ref(), b"failure" | b"error") => {
                in_failure = false;
            }
            _ => {}
        }
    }
}

fn set(cases: &mut [Case], verdict: Verdict) {
    if let Some(last) = cases.last_mut() {
        last.verdict = verdict;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_failed_and_skipped_cases_are_told_apart() {
        let xml = r#"<testsuites><testsuite>
            <testcase name="[It] a &amp; b" status="passed"><system-err>said</system-err></testcase>
            <testcase name="[It] c"><skipped message="skipped - not supported"></skipped></testcase>
            <testcase name="[It] d"><failure message="expected" type="failed">at line 1</failure></testcase>
            <testcase name="[It] e"/>
            </testsuite></testsuites>"#;
        let verdicts: Vec<_> =
            parse(xml).unwrap().into_iter().map(|case| (case.name, case.verdict)).collect();
        assert_eq!(
            verdicts,
            [
                ("[It] a & b".to_owned(), Verdict::Passed),
                ("[It] c".to_owned(), Verdict::Skipped("skipped - not supported".to_owned())),
                ("[It] d".to_owned(), Verdict::Failed("expected\nat line 1".to_owned())),
                ("[It] e".to_owned(), Verdict::Passed),
            ]
        );
        assert!(parse("<a></b>").is_err());
    }
}
