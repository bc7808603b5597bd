//! JSON with one answer on a line, so that two reports can be compared line by line.

use std::fmt::Write as _;

/// Returns a text as JSON writes it, with quotes.
pub(crate) fn string(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            // U+2028 and U+2029 end a line in JavaScript.
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Returns an object of these members, in this order. The values are JSON.
pub(crate) fn object(members: &[(&str, String)]) -> String {
    let members = members.iter().map(|(name, value)| format!("{}: {value}", string(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

/// Returns an array with one element on each line, indented by so many spaces.
pub(crate) fn lines(elements: &[String], indent: usize) -> String {
    if elements.is_empty() {
        return "[]".to_owned();
    }
    let (inner, outer) = (" ".repeat(indent + 2), " ".repeat(indent));
    format!("[\n{inner}{}\n{outer}]", elements.join(&format!(",\n{inner}")))
}
