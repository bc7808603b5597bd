//! Small pieces of the generated Rust code.

use std::fmt::Display;

use crate::constants;

/// `&[a, b]`.
pub(crate) fn slice(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("&[{}]", items.join(", "))
}

/// `&[a, b]`, with a literal for each row; the first row that is wrong is an error.
pub(crate) fn rows<T, L: Display>(
    rows: impl IntoIterator<Item = T>,
    row: impl FnMut(T) -> Result<L, String>,
) -> Result<String, String> {
    let rows: Result<Vec<L>, String> = rows.into_iter().map(row).collect();
    rows.map(slice)
}

/// `&["a", "b"]`.
pub(crate) fn texts(texts: &[String]) -> String {
    slice(texts.iter().map(|text| format!("{text:?}")))
}

/// `PlaceFor::PublishBlock` for `publish-block`. The compiler refuses an unknown variant.
pub(crate) fn variant(kind: &str, name: &str) -> String {
    let words = name.split('-').filter_map(|word| word.split_at_checked(1));
    let name: String = words.map(|(first, rest)| first.to_ascii_uppercase() + rest).collect();
    format!("{kind}::{name}")
}

/// `&[PlaceFor::Stage, PlaceFor::Unstage]`.
pub(crate) fn variants(kind: &str, names: &[String]) -> String {
    slice(names.iter().map(|name| variant(kind, name)))
}

/// A constant of the kernel's interface, with its name.
pub(crate) fn value(name: &str) -> Result<String, String> {
    Ok(format!("Value {{ name: {name:?}, number: {} }}", constants::value(name)?))
}

/// Fails when a name is none of those that are known.
pub(crate) fn known(
    names: impl IntoIterator<Item = impl AsRef<str>>,
    all: &[&str],
) -> Result<(), String> {
    let mut names = names.into_iter();
    match names.find(|name| !all.contains(&name.as_ref())) {
        Some(unknown) => Err(format!("{:?} is not known", unknown.as_ref())),
        None => Ok(()),
    }
}

/// Returns the reason of a rule as a literal; a rule without one of its own is an error, and so is
/// one that refers to another rule.
pub(crate) fn reason(why: &str, what: &str) -> Result<String, String> {
    if why.trim().len() < 4 || why.starts_with("as ") || why.contains("as above") {
        return Err(format!("{what} has no reason"));
    }
    Ok(format!("{why:?}"))
}

/// Returns the reason for which a row stays that was not seen to be used, as a literal.
pub(crate) fn kept(why: Option<&str>, what: &str) -> Result<String, String> {
    why.map_or(Ok("None".to_owned()), |why| Ok(format!("Some({})", reason(why, what)?)))
}
