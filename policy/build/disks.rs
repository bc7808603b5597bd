//! `disks.toml`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::literal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disks {
    policies: BTreeMap<String, Policy>,
    disks: Vec<Disk>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    flag: Option<String>,
    disks: String,
    places: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disk {
    classes: Vec<String>,
    name: String,
    attribute: Option<String>,
    value: Option<String>,
    id: String,
    why: String,
}

/// The constants, and the names of the policies.
pub(crate) struct Compiled {
    pub(crate) disks: String,
    pub(crate) policies: String,
    pub(crate) names: Vec<String>,
}

pub(crate) fn compile(text: &str) -> Result<Compiled, String> {
    let file: Disks = toml::from_str(text).map_err(|e| e.to_string())?;
    let chosen: BTreeSet<_> = file.policies.values().map(|policy| &policy.flag).collect();
    if chosen.len() != file.policies.len() {
        return Err("each policy needs a flag of its own, all but one".to_owned());
    }
    let mut policies = String::new();
    for (name, Policy { flag, disks, places, why }) in &file.policies {
        if !file.disks.iter().any(|row| row.classes.contains(disks)) {
            return Err(format!("policy {name} recognises no disk"));
        }
        policies += &format!(
            "pub(crate) const {constant}: Policy = Policy {{ name: {name:?}, digest: digests::{constant}, flag: {flag:?}, \
             disks: {disks}, places: {places}, why: {why} }};\n",
            constant = name.to_uppercase(),
            disks = literal::variant("DiskClass", disks),
            places = literal::variant("PlaceClass", places),
            why = literal::reason(why, name)?,
        );
    }
    let rows = literal::rows(&file.disks, |row| {
        let mark = match (&row.attribute, &row.value) {
            (Some(attribute), Some(value)) => format!("Some(({attribute:?}, {value:?}))"),
            (None, None) => "None".to_owned(),
            _ => return Err(format!("{:?} needs an attribute with its value", row.name)),
        };
        Ok(format!(
            "DiskRow {{ classes: {}, name: {:?}, mark: {mark}, id: {:?}, why: {} }}",
            literal::variants("DiskClass", &row.classes),
            row.name,
            row.id,
            literal::reason(&row.why, &row.name)?
        ))
    })?;
    let disks = format!("pub(crate) const DISKS: &[DiskRow] = {rows};\n");
    Ok(Compiled { disks, policies, names: file.policies.into_keys().collect() })
}
