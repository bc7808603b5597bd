//! JSON with one answer on a line, so that two reports can be compared line by line.

pub(crate) use ebs_csi_document::json_string as string;

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
