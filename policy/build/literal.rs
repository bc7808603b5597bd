//! Small pieces of the generated Rust code.

use std::fmt::Display;

/// `&[a, b]`.
pub(crate) fn slice(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("&[{}]", items.join(", "))
}

/// A string literal.
pub(crate) fn text(text: &str) -> String {
    format!("{text:?}")
}

/// `&["a", "b"]`.
pub(crate) fn texts(texts: &[String]) -> String {
    slice(texts.iter().map(|one| text(one)))
}

/// Returns the reason of a rule as a literal; a rule without one is an error.
pub(crate) fn reason(why: &str, what: &str) -> Result<String, String> {
    if why.trim().len() < 4 {
        return Err(format!("{what} has no reason"));
    }
    Ok(text(why))
}
