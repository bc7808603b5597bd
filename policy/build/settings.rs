//! `settings.toml`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::literal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    flags: Vec<String>,
    #[serde(default)]
    narrower: Vec<String>,
    #[serde(default)]
    same: Vec<String>,
    #[serde(default)]
    wider: Vec<String>,
    default: Option<String>,
    #[serde(default)]
    switch: bool,
    #[serde(default)]
    several: bool,
    why: String,
}

pub(crate) fn compile(text: &str) -> Result<String, String> {
    let programs: BTreeMap<String, Vec<Setting>> =
        toml::from_str(text).map_err(|e| e.to_string())?;
    let rows = programs.iter().flat_map(|(program, rows)| {
        let flags = rows.iter().flat_map(|row| row.flags.iter().map(move |flag| (flag, row)));
        flags.map(move |(flag, row)| (program, flag, row))
    });
    let mut known = BTreeSet::new();
    let rows = literal::rows(rows, |(program, flag, row)| {
        if !known.insert((program, flag)) {
            return Err(format!("{program} has --{flag} twice"));
        }
        entry(program, flag, row).map_err(|e| format!("{program} --{flag}: {e}"))
    });
    Ok(format!("pub(crate) const SETTINGS: &[Setting] = {};\n", rows?))
}

fn entry(program: &str, flag: &str, row: &Setting) -> Result<String, String> {
    let Setting { narrower, same, wider, default, switch, several, why, .. } = row;
    let all: Vec<&String> = [narrower, same, wider].into_iter().flatten().collect();
    if all.is_empty() != *switch {
        return Err("a switch has no values, and every other flag has".to_owned());
    }
    if let Some((_, twice)) = all.iter().enumerate().find(|(at, value)| all[..*at].contains(value))
    {
        return Err(format!("{twice:?} stands there twice"));
    }
    let is_narrow = |default: &String| {
        [narrower, same].into_iter().flatten().any(|value| value == "*" || value == default)
    };
    if default.as_ref().is_some_and(|default| !is_narrow(default)) {
        return Err("the default is wider than the policy".to_owned());
    }
    Ok(format!(
        "Setting {{ program: {program:?}, flag: {:?}, narrower: {}, same: {}, wider: {}, default: {default:?}, switch: {switch}, several: {several}, why: {} }}",
        format!("--{flag}"),
        literal::texts(narrower),
        literal::texts(same),
        literal::texts(wider),
        literal::reason(why, "the setting")?,
    ))
}
