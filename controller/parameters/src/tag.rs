//! A tag of a class, `key=value`, whose value is a template.

use ebs_csi_proto::Failure;
use ebs_csi_template::{Fields, TemplateError, check, render};

use crate::tag_key::is_reserved;

/// Checks a tag as far as that is possible without a claim.
///
/// # Errors
/// A tag that is not `key=value` or is reserved, or a template that cannot be parsed.
pub fn check_tag(list: &str, specification: &str) -> Result<(), Failure> {
    read(list, specification, check).map(drop)
}

/// Returns the key of a tag, and its value with the fields of a claim.
///
/// # Errors
/// A tag that is not `key=value` or is reserved, or whose template fails.
pub fn render_tag(
    list: &str,
    specification: &str,
    fields: &dyn Fields,
) -> Result<(String, String), Failure> {
    let (key, value) = read(list, specification, |value| render(value, fields))?;
    Ok((key.to_owned(), value))
}

fn read<'a, T>(
    list: &str,
    specification: &'a str,
    read_value: impl FnOnce(&str) -> Result<T, TemplateError>,
) -> Result<(&'a str, T), Failure> {
    let refuse = |why: String| Failure::invalid(&format!("{list}.tagSpecification"), why);
    let Some((key, value)) = specification.split_once('=') else {
        return Err(refuse(format!("{specification:?} is not key=value")));
    };
    if is_reserved(key) {
        return Err(refuse(format!("the tag {key:?} is the driver's own; use another key")));
    }
    let value = read_value(value).map_err(|why| refuse(format!("{specification:?}: {why}")))?;
    Ok((key, value))
}
