//! `process.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{constants, literal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    landlock: Landlock,
    securebits: Vec<SecureBits>,
    namespaces: Vec<Namespaces>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Landlock {
    handled: u8,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecureBits {
    bits: Vec<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespaces {
    profiles: Vec<String>,
    kinds: Vec<String>,
    share: String,
    why: String,
}

pub(crate) fn compile(text: &str, profiles: &[&str]) -> Result<String, String> {
    let file: Process = toml::from_str(text).map_err(|e| e.to_string())?;
    let bits = literal::rows(&file.securebits, |row| {
        let bits = literal::rows(&row.bits, |name| literal::value(name))?;
        let why = literal::reason(&row.why, "securebits")?;
        Ok(format!("SecureBits {{ bits: {bits}, why: {why} }}"))
    })?;
    let mut known = BTreeMap::new();
    let namespaces = literal::rows(&file.namespaces, |row| {
        literal::known(&row.profiles, profiles)?;
        for (profile, kind) in
            row.profiles.iter().flat_map(|one| row.kinds.iter().map(move |kind| (one, kind)))
        {
            // What is the supervisor's is whatever the supervisor's is.
            if row.share != "with-supervisor" && known.insert((profile, kind), &row.share).is_some()
            {
                return Err(format!("{profile} has two rows about its {kind} namespace"));
            }
        }
        Ok(format!(
            "NamespaceRow {{ profiles: {}, kinds: {}, share: {}, why: {} }}",
            literal::texts(&row.profiles),
            literal::rows(&row.kinds, |kind| {
                let number = constants::namespace(kind)?;
                Ok(format!("Value {{ name: {kind:?}, number: {number} }}"))
            })?,
            literal::variant("Share", &row.share),
            literal::reason(&row.why, "the namespace")?
        ))
    })?;
    Ok(format!(
        "pub(crate) const LANDLOCK: LandlockHandled = LandlockHandled {{ abi: {}, why: {} }};\n\
         pub(crate) const SECURE_BITS: &[SecureBits] = {bits};\n\
         pub(crate) const NAMESPACES: &[NamespaceRow] = {namespaces};\n",
        file.landlock.handled,
        literal::reason(&file.landlock.why, "landlock")?,
    ))
}
