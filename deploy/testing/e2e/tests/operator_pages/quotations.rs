//! `troubleshooting.md` and `faq.md` quote the driver: each quotation is in the source.

use ebs_csi_e2e::repository::beneath;

use crate::read;

/// Folders of the programs and of the chart that print what a user sees.
const SOURCES: [&str; 9] = [
    "controller/src",
    "controller/parameters/src",
    "controller/ec2/src",
    "controller/safe-detach/src",
    "controller/node-lifecycle/src",
    "node-agent/src",
    "mount-helper/src",
    "policy",
    "proto",
];

/// The most characters between two pieces of one quotation in the source.
const NEAR: usize = 600;

/// Returns the text with each run of white space, and each line break within a literal, as one
/// space, and quotes as they are printed.
fn flat(text: &str) -> String {
    let joined = text.replace("\\\n", " ").replace("\\\"", "\"");
    joined.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn sources() -> Vec<String> {
    let mut texts = Vec::new();
    for folder in SOURCES {
        let mut files = beneath(folder, "rs");
        files.retain(|path| {
            let is_tests = path.ends_with("tests.rs");
            !is_tests && !path.components().any(|part| part.as_os_str() == "tests")
        });
        assert!(!files.is_empty(), "{folder} has no source");
        for path in files {
            let text = std::fs::read_to_string(path).expect("a source file");
            let code = text.split("#[cfg(test)]\nmod tests {").next();
            texts.push(flat(code.unwrap_or_default()));
        }
    }
    for path in beneath("deploy/install/chart/templates", "tpl") {
        texts.push(flat(&std::fs::read_to_string(path).expect("a template")));
    }
    texts
}

/// Returns whether the pieces between the ellipses stand near each other in one source.
fn is_quoted(quotation: &str, sources: &[String]) -> bool {
    let pieces: Vec<&str> =
        quotation.split('…').map(str::trim).filter(|piece| !piece.is_empty()).collect();
    sources.iter().any(|source| {
        let first = pieces.first().copied().unwrap_or_default();
        source.match_indices(first).any(|(begin, _)| {
            let mut at = begin;
            pieces.iter().all(|piece| {
                let end = source.len().min(at + NEAR);
                let end = (end..=source.len()).find(|it| source.is_char_boundary(*it));
                let found = source[at..end.unwrap_or(source.len())].find(piece);
                found.is_some_and(|offset| {
                    at += offset + piece.len();
                    true
                })
            })
        })
    })
}

/// A quotation is a heading in backticks. Headings of the section of Kubernetes' own words are not
/// looked for.
#[test]
fn quoted_messages_stand_in_source() {
    let sources = sources();
    let page = read("deploy/docs/troubleshooting.md");
    let ours = page.split("\n## Words of Kubernetes").next().expect("the page");
    let mut quoted = 0;
    for line in ours.lines() {
        let heading = line.strip_prefix("### `").and_then(|it| it.strip_suffix('`'));
        let Some(quotation) = heading else {
            assert!(!line.starts_with("### "), "{line}: not a quotation");
            continue;
        };
        assert!(quotation.len() >= 12, "{quotation}: too short to be found");
        assert!(is_quoted(quotation, &sources), "not in the source: {quotation}");
        quoted += 1;
    }
    assert!(quoted >= 20, "{quoted}");
    assert!(!is_quoted("a text that … nobody prints", &sources));
}
