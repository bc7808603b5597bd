//! `sandbox/*.toml`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::calls::{self, Group, Row, Rule};
use crate::{constants, literal};

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    about: String,
    #[serde(rename = "use")]
    groups: Vec<String>,
    inherits: Option<String>,
    identity: Identity,
    capabilities: Capabilities,
    limits: BTreeMap<String, Limit>,
    #[serde(default)]
    kept_descriptors: u32,
    #[serde(default)]
    listeners: Vec<Listener>,
    landlock: Landlock,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    other_unprivileged_uid: bool,
    #[serde(default)]
    opens_disks: bool,
    why: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Capabilities {
    permitted: Vec<Capability>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Capability {
    name: String,
    effective: bool,
    #[serde(default)]
    optional: bool,
    why: String,
    kept: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    value: u64,
    why: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listener {
    flag: String,
    accepted_by: Option<String>,
    why: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Landlock {
    floor: u8,
    floor_is_hard: bool,
    why: String,
    files: String,
    tcp: String,
    scopes: Vec<String>,
    #[serde(default)]
    rules: Vec<FileRule>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    #[serde(default)]
    paths: Vec<String>,
    place: Option<String>,
    rights: Vec<String>,
    #[serde(default)]
    optional: bool,
    why: String,
}

pub(crate) fn groups(text: &str) -> Result<BTreeMap<String, Group>, String> {
    toml::from_str(text).map_err(|e| e.to_string())
}

pub(crate) struct Profiles {
    groups: BTreeMap<String, Group>,
    profiles: BTreeMap<String, Profile>,
}

impl Profiles {
    pub(crate) fn new(groups: BTreeMap<String, Group>) -> Self {
        Self { groups, profiles: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        let more: BTreeMap<String, Profile> = toml::from_str(text).map_err(|e| e.to_string())?;
        self.profiles.extend(more);
        Ok(())
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.profiles.keys().map(String::as_str).collect()
    }

    pub(crate) fn compile(&self) -> Result<String, String> {
        let used: BTreeSet<&String> = self.profiles.values().flat_map(|p| &p.groups).collect();
        if let Some(unused) = self.groups.keys().find(|name| !used.contains(name)) {
            return Err(format!("group {unused:?} is used by no profile"));
        }
        let mut out = String::new();
        for (name, profile) in &self.profiles {
            let entry = self.profile(name, profile).map_err(|e| format!("[{name}] {e}"))?;
            let constant = name.to_uppercase().replace('-', "_");
            out += &format!("pub(crate) const {constant}: Profile = {entry};\n");
        }
        Ok(out)
    }

    fn profile(&self, name: &str, profile: &Profile) -> Result<String, String> {
        let identity = &profile.identity;
        let accepting = profile.listeners.iter().filter_map(|row| row.accepted_by.as_ref());
        if let Some(unknown) = accepting.into_iter().find(|one| !self.profiles.contains_key(*one)) {
            return Err(format!("no process {unknown:?} accepts connections"));
        }
        let limits = literal::rows(&profile.limits, |(resource, limit)| {
            let kind = match resource.as_str() {
                "core" => "Core",
                "nofile" => "Descriptors",
                other => return Err(format!("{other:?} is not a known limit")),
            };
            Ok(format!(
                "Limit {{ resource: Resource::{kind}, value: {}, why: {} }}",
                limit.value,
                literal::reason(&limit.why, resource)?
            ))
        })?;
        let [calls, choices] = calls::compile(&self.rows(name, profile)?)?;
        Ok(format!(
            "Profile {{ name: {name:?}, about: {about:?}, \
             identity: Identity {{ uid: {uid}, gid: {gid}, groups: {groups}, other_unprivileged_uid: {other}, opens_disks: {disks}, why: {why} }}, \
             capabilities: {capabilities}, limits: {limits}, kept_descriptors: {kept}, listeners: {listeners}, landlock: {landlock}, calls: {calls}, choices: {choices} }}",
            about = profile.about,
            uid = identity.uid,
            gid = identity.gid,
            groups = literal::slice(&identity.groups),
            other = identity.other_unprivileged_uid,
            disks = identity.opens_disks,
            why = literal::reason(&identity.why, "the identity")?,
            capabilities = literal::rows(&profile.capabilities.permitted, capability)?,
            kept = profile.kept_descriptors,
            listeners = literal::rows(&profile.listeners, listener)?,
            landlock = landlock(&profile.landlock)?,
        ))
    }

    fn rows(&self, name: &str, profile: &Profile) -> Result<Vec<Row>, String> {
        let mut rows = match &profile.inherits {
            None => Vec::new(),
            Some(parent) => {
                let missing = || format!("there is no profile {parent:?}");
                self.rows(parent, self.profiles.get(parent).ok_or_else(missing)?)?
            }
        };
        let kept = profile.kept_descriptors;
        for name in &profile.groups {
            let missing = || format!("there is no group {name:?}");
            rows.extend(self.groups.get(name).ok_or_else(missing)?.rows(name, kept));
        }
        rows.extend(calls::rows(name, &profile.rules, kept));
        Ok(rows)
    }
}

fn capability(row: &Capability) -> Result<String, String> {
    Ok(format!(
        "HeldCapability {{ capability: Capability {{ name: {:?}, number: {} }}, effective: {}, optional: {}, why: {}, kept: {} }}",
        format!("CAP_{}", row.name),
        constants::capability(&row.name)?,
        row.effective,
        row.optional,
        literal::reason(&row.why, &row.name)?,
        literal::kept(row.kept.as_deref(), &row.name)?
    ))
}

fn listener(row: &Listener) -> Result<String, String> {
    let why = literal::reason(&row.why, &row.flag)?;
    let accepted_by = &row.accepted_by;
    Ok(format!("Listener {{ flag: {:?}, accepted_by: {accepted_by:?}, why: {why} }}", row.flag))
}

fn landlock(row: &Landlock) -> Result<String, String> {
    let files = match row.files.as_str() {
        "listed" => {
            let rules: Result<Vec<_>, String> = row.rules.iter().map(file_rules).collect();
            format!("Files::Listed({})", literal::slice(rules?.concat()))
        }
        _ if !row.rules.is_empty() => {
            return Err("rules on files need files = \"listed\"".to_owned());
        }
        other => literal::variant("Files", other),
    };
    Ok(format!(
        "Landlock {{ floor: {}, floor_is_hard: {}, files: {files}, tcp: {}, scopes: {}, why: {} }}",
        row.floor,
        row.floor_is_hard,
        literal::variant("Tcp", &row.tcp),
        literal::variants("Scope", &row.scopes),
        literal::reason(&row.why, "landlock")?
    ))
}

/// Returns the literals of a row: one for each of its paths, or that of its place.
fn file_rules(row: &FileRule) -> Result<Vec<String>, String> {
    let absolute = |path: &String| path.starts_with('/');
    let places: Vec<String> = match (row.paths.as_slice(), &row.place) {
        ([], Some(place)) => vec![format!("FilePlace::Named({place:?})")],
        (paths @ [_, ..], None) if paths.iter().all(absolute) => {
            paths.iter().map(|path| format!("FilePlace::Path({path:?})")).collect()
        }
        _ => return Err("a rule on files needs absolute paths or a place".to_owned()),
    };
    let (rights, optional) = (literal::variants("FileRight", &row.rights), row.optional);
    let rules = places.iter().map(|place| {
        let why = literal::reason(&row.why, place)?;
        Ok(format!(
            "FileRule {{ place: {place}, rights: {rights}, optional: {optional}, why: {why} }}"
        ))
    });
    rules.collect()
}
