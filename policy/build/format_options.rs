//! `format-options.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::literal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionRow {
    number: u32,
    about: String,
    default: String,
    #[serde(default)]
    go_driver: String,
    example: Option<u64>,
    requires: Option<String>,
    given_by: Option<String>,
    on: Vec<Support>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Support {
    file_systems: Vec<String>,
    arguments: Vec<String>,
    least: Option<u64>,
    most: Option<u64>,
    #[serde(default)]
    power_of_two: bool,
    block_parts: Option<u64>,
    range: Option<String>,
    source: String,
    shown: String,
}

pub(crate) fn compile(text: &str) -> Result<String, String> {
    let rows: BTreeMap<String, OptionRow> = toml::from_str(text).map_err(|e| e.to_string())?;
    for (key, row) in &rows {
        let is_switch = |key| rows.get(key).is_some_and(|row| row.example.is_none());
        if !row.requires.as_ref().is_none_or(is_switch) {
            return Err(format!("[{key}] requires what is no switch"));
        }
    }
    let by_number: BTreeMap<u32, _> = rows.iter().map(|row| (row.1.number, row)).collect();
    if by_number.len() < rows.len() || by_number.contains_key(&0) {
        return Err("a number is 0 or occurs twice".to_owned());
    }
    let entries = literal::rows(by_number.into_values(), |(key, row)| {
        entry(key, row).map_err(|e| format!("[{key}] {e}"))
    });
    Ok(format!("pub(crate) const ROWS: &[OptionRow] = {};\n", entries?))
}

fn entry(key: &str, row: &OptionRow) -> Result<String, String> {
    let kind = if row.example.is_some() { "number" } else { "switch" };
    let given_by = row.given_by.as_deref().unwrap_or("storage-class");
    Ok(format!(
        "OptionRow {{ key: {key:?}, context_key: {context_key:?}, number: {number}, about: {about}, \
         default: {default:?}, go_driver: {go_driver:?}, kind: {kind}, example: {example}, requires: {requires:?}, given_by: {given_by}, on: {on} }}",
        context_key = key.to_ascii_lowercase(),
        number = row.number,
        about = literal::reason(&row.about, "the option")?,
        default = row.default,
        go_driver = row.go_driver,
        kind = literal::variant("OptionKind", kind),
        example = row.example.unwrap_or(1),
        requires = row.requires,
        given_by = literal::variant("GivenBy", given_by),
        on = literal::rows(&row.on, |support| self::support(row.example.is_some(), support))?,
    ))
}

fn support(is_number: bool, support: &Support) -> Result<String, String> {
    let (pairs, rest) = support.arguments.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() || pairs.iter().any(|[flag, _]| !flag.starts_with('-'))
    {
        return Err("the arguments are not pairs of a flag and its value".to_owned());
    }
    if pairs.iter().any(|[_, value]| value.contains("{value}")) != is_number {
        return Err("an argument must have {value}, and only that of a number".to_owned());
    }
    let range = match (support.least, support.most, &support.range) {
        (Some(least), Some(most), Some(words)) if is_number => format!(
            "Some(Range {{ least: {least}, most: {most}, power_of_two: {power_of_two}, \
             block_parts: {block_parts:?}, words: {words} }})",
            power_of_two = support.power_of_two,
            block_parts = support.block_parts,
            words = literal::reason(words, "the range")?,
        ),
        (None, None, None) if !is_number => "None".to_owned(),
        _ => return Err("a number needs least, most and range; a switch has none".to_owned()),
    };
    let arguments = pairs.iter().map(|[flag, value]| format!("({flag:?}, {value:?})"));
    Ok(format!(
        "Support {{ file_systems: {file_systems}, range: {range}, arguments: {arguments}, source: {source}, \
         shown: {shown:?} }}",
        file_systems = literal::variants("FsType", &support.file_systems),
        arguments = literal::slice(arguments),
        source = literal::reason(&support.source, "the support")?,
        shown = support.shown,
    ))
}
