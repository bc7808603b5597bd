//! `mounts.toml`.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{constants, literal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mounts {
    places: Vec<Place>,
    flags: Vec<Flag>,
    refused: Vec<Refused>,
    blank: Vec<Area>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    class: String,
    pattern: String,
    operations: Vec<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Flag {
    name: String,
    file_systems: Vec<String>,
    effect: String,
    set: Option<String>,
    clear: Option<String>,
    number: Option<[u64; 2]>,
    one_of: Option<Vec<String>>,
    selinux_label: Option<bool>,
    any_value: Option<bool>,
    size: Option<bool>,
    parameter: Option<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    name: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    from: String,
    parts: Option<u32>,
    offset: u64,
    length: u64,
    why: String,
}

/// The constants of `mounts.toml`, one text for each module that includes them.
pub(crate) struct Compiled {
    pub(crate) places: String,
    pub(crate) flags: String,
    pub(crate) blank: String,
}

pub(crate) fn compile(text: &str) -> Result<Compiled, String> {
    let mounts: Mounts = toml::from_str(text).map_err(|e| e.to_string())?;
    let flags = literal::rows(&mounts.flags, |row| {
        flag(row).map_err(|e| format!("flag {:?}: {e}", row.name))
    })?;
    let refused = literal::rows(&mounts.refused, |row| {
        let why = literal::reason(&row.why, &row.name)?;
        Ok(format!("RefusedFlag {{ name: {:?}, why: {why} }}", row.name))
    })?;

    // A flag has at most one row for a file system with a value, and one without.
    let mut known = BTreeSet::new();
    for row in &mounts.flags {
        for fs in &row.file_systems {
            let valued = row.number.is_some()
                || row.one_of.is_some()
                || [row.selinux_label, row.any_value, row.size].iter().any(Option::is_some);
            if !known.insert((row.name.clone(), fs.clone(), valued)) {
                return Err(format!("flag {:?} has two rows for {fs}", row.name));
            }
            if mounts.refused.iter().any(|no| no.name == row.name) {
                return Err(format!("flag {:?} is both allowed and refused", row.name));
            }
        }
    }
    let (places, areas) =
        (literal::rows(&mounts.places, place)?, literal::rows(&mounts.blank, area)?);
    Ok(Compiled {
        places: format!("pub(crate) const PLACES: &[Place] = {places};\n"),
        flags: format!(
            "pub(crate) const FLAGS: &[FlagRule] = {flags};\n\
             pub(crate) const REFUSED: &[RefusedFlag] = {refused};\n"
        ),
        blank: format!("pub(crate) const AREAS: &[Area] = {areas};\n"),
    })
}

fn place(row: &Place) -> Result<String, String> {
    let pattern: Vec<String> = row
        .pattern
        .split('/')
        .map(|part| match part {
            "**" => "PatternPart::Rest".to_owned(),
            "*" => "PatternPart::One".to_owned(),
            name => format!("PatternPart::Name({name:?})"),
        })
        .collect();
    let rest_position = pattern.iter().position(|part| part == "PatternPart::Rest");
    if rest_position.is_some_and(|at| at + 1 != pattern.len()) || row.pattern.contains("//") {
        return Err(format!("pattern {:?}: ** may only stand at the end", row.pattern));
    }
    Ok(format!(
        "Place {{ class: {}, pattern: {:?}, parts: {}, operations: {}, why: {} }}",
        literal::variant("PlaceClass", &row.class),
        row.pattern,
        literal::slice(pattern),
        literal::variants("PlaceFor", &row.operations),
        literal::reason(&row.why, &row.pattern)?,
    ))
}

fn flag(row: &Flag) -> Result<String, String> {
    let attribute = |names: &Option<String>| {
        let names = names.as_deref().unwrap_or_default().split_whitespace();
        let mut bits = names.map(constants::mount_attribute);
        bits.try_fold(0, |all, bits| Ok::<_, String>(all | bits?))
    };
    let effect = match row.effect.as_str() {
        "attribute" => {
            if row.set.is_none() && row.clear.is_none() {
                return Err("an attribute to set or to clear is missing".to_owned());
            }
            format!(
                "Effect::Attribute {{ set: {}, clear: {} }}",
                attribute(&row.set)?,
                attribute(&row.clear)?
            )
        }
        other => literal::variant("Effect", other),
    };
    if row.effect != "attribute" && (row.set.is_some() || row.clear.is_some()) {
        return Err("only an attribute is set or cleared".to_owned());
    }
    let kinds = [
        row.number.map(|[low, high]| format!("ValueRule::Number {{ low: {low}, high: {high} }}")),
        row.one_of.as_ref().map(|words| format!("ValueRule::OneOf({})", literal::texts(words))),
        row.selinux_label.map(|_| "ValueRule::SelinuxLabel".to_owned()),
        row.any_value.map(|_| "ValueRule::Any".to_owned()),
        row.size.map(|_| "ValueRule::Size".to_owned()),
    ];
    let mut kinds = kinds.into_iter().flatten();
    let value = kinds.next().unwrap_or_else(|| "ValueRule::None".to_owned());
    if kinds.next().is_some() || row.number.is_some_and(|[low, high]| low > high) {
        return Err("one kind of value, and a range that is not empty".to_owned());
    }
    Ok(format!(
        "FlagRule {{ name: {:?}, parameter: {:?}, file_systems: {}, value: {value}, effect: {effect}, why: {} }}",
        row.name,
        row.parameter.as_ref().unwrap_or(&row.name),
        literal::variants("FsType", &row.file_systems),
        literal::reason(&row.why, &row.name)?,
    ))
}

fn area(row: &Area) -> Result<String, String> {
    let from = match (row.from.as_str(), row.parts) {
        ("part", Some(parts @ 1..=1024)) => format!("AreaStart::Part({parts})"),
        (from, None) => literal::variant("AreaStart", from),
        (other, parts) => {
            return Err(format!("{other:?} with parts {parts:?} is not where an area begins"));
        }
    };
    if row.length == 0 || !row.length.is_multiple_of(4096) || !row.offset.is_multiple_of(4096) {
        return Err(format!("area at {}: offset and length must be multiples of 4096", row.offset));
    }
    Ok(format!(
        "Area {{ from: {from}, offset: {}, length: {}, why: {} }}",
        row.offset,
        row.length,
        literal::reason(&row.why, "an area")?,
    ))
}
