//! `sandbox/*.toml`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::{constants, literal};

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    #[serde(default)]
    why: String,
    #[serde(default)]
    calls: Vec<String>,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    call: String,
    only: Option<String>,
    argument: Option<u8>,
    masked: Option<String>,
    one_of: Option<Vec<String>>,
    has_bits: Option<String>,
    // Bits that no argument may have, by the argument's index.
    lacks_bits: Option<BTreeMap<String, String>>,
    // "kept": a descriptor below the profile's `kept_descriptors`; "new": any other.
    descriptor: Option<String>,
    // The argument is the process id of the caller.
    #[serde(default)]
    itself: bool,
    answer: Option<String>,
    // The error for every value that `one_of` or `descriptor` does not name; without it, such a
    // call ends the process.
    otherwise: Option<String>,
    // The rule belongs to the process only when its command line makes this choice.
    when: Option<String>,
    why: String,
}

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
    path: Option<String>,
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
            calls = literal::slice(self.calls(profile)?),
            choices = literal::slice(choices(profile)?),
        ))
    }

    fn calls(&self, profile: &Profile) -> Result<Vec<String>, String> {
        let mut rows = match &profile.inherits {
            None => Vec::new(),
            Some(parent) => {
                let parent = self
                    .profiles
                    .get(parent)
                    .ok_or_else(|| format!("there is no profile {parent:?}"))?;
                self.calls(parent)?
            }
        };
        let mut names = BTreeSet::new();
        for name in &profile.groups {
            let group =
                self.groups.get(name).ok_or_else(|| format!("there is no group {name:?}"))?;
            for call in &group.calls {
                let why = literal::reason(&group.why, call)?;
                if !names.insert(call.clone()) {
                    return Err(format!("{call} is listed twice"));
                }
                rows.push(format!(
                    "CallRule {{ call: {call:?}, only_x86_64: false, condition: Condition::Always, answer: CallAnswer::Allow, why: {why} }}"
                ));
            }
            for row in &group.rules {
                rows.extend(rule(row, profile.kept_descriptors)?);
            }
        }
        for row in profile.rules.iter().filter(|row| row.when.is_none()) {
            // Several rules may share a call only when each has a condition on an argument.
            if !row.has_condition() && !names.insert(row.call.clone()) {
                return Err(format!("{} is listed twice", row.call));
            }
            if row.has_condition() && names.contains(&row.call) {
                return Err(format!("{} is allowed without a condition elsewhere", row.call));
            }
            rows.extend(rule(row, profile.kept_descriptors)?);
        }
        Ok(rows)
    }
}

/// Returns the rules that a process has by choice, under the name of each choice.
fn choices(profile: &Profile) -> Result<Vec<String>, String> {
    let mut choices: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in &profile.rules {
        let Some(name) = &row.when else { continue };
        // A rule for every argument would undo the rule that holds without the choice.
        if !row.has_condition() {
            return Err(format!("{}: a choice needs a condition", row.call));
        }
        choices.entry(name).or_default().extend(rule(row, profile.kept_descriptors)?);
    }
    let entries = choices.into_iter().map(|(name, calls)| {
        let calls = literal::slice(calls);
        format!("Choice {{ name: {name:?}, calls: {calls} }}")
    });
    Ok(entries.collect())
}

impl Rule {
    fn has_condition(&self) -> bool {
        self.argument.is_some() || self.lacks_bits.is_some()
    }

    /// Returns the rule's condition, and the opposite one where `otherwise` may name an answer to
    /// it. `kept` is the profile's number of kept descriptors.
    fn conditions(&self, kept: u32) -> Result<(String, Option<String>), String> {
        let Self {
            call, argument, masked, one_of, has_bits, lacks_bits, descriptor, itself, ..
        } = self;
        let incomplete = || format!("{call}: the condition is not complete");
        let argument = argument.filter(|argument| *argument < 6);
        let kinds = [
            one_of.is_some(),
            has_bits.is_some(),
            lacks_bits.is_some(),
            descriptor.is_some(),
            *itself,
        ];
        let kinds = kinds.into_iter().filter(|given| *given).count();
        if kinds > 1 || (kinds == 1) != self.has_condition() || masked.is_some() && one_of.is_none()
        {
            return Err(incomplete());
        }
        // These name their arguments themselves.
        if let (Some(bits), None) = (lacks_bits, argument) {
            let bits = literal::rows(bits, |(argument, name)| {
                let argument: u8 = argument.parse().map_err(|_| incomplete())?;
                constants::argument_bits(call, argument)?;
                Ok(format!("({argument}, {})", literal::value(name)?))
            })?;
            return Ok((format!("Condition::LacksBits({bits})"), None));
        }
        if kinds == 0 {
            return Ok(("Condition::Always".to_owned(), None));
        }
        let argument = argument.ok_or_else(incomplete)?;
        let all = constants::argument_bits(call, argument)?;
        if *itself {
            return Ok((format!("Condition::Itself {{ argument: {argument} }}"), None));
        }
        if let Some(name) = has_bits {
            let bits = literal::value(name)?;
            return Ok((
                format!("Condition::HasBits {{ argument: {argument}, bits: {bits} }}"),
                None,
            ));
        }
        if let Some(which) = descriptor {
            let [below, not_below] = ["Below", "NotBelow"]
                .map(|kind| format!("Condition::{kind} {{ argument: {argument}, limit: {kept} }}"));
            return match which.as_str() {
                _ if kept == 0 => Err(format!("{call}: the profile keeps no descriptors")),
                "kept" => Ok((below, Some(not_below))),
                "new" => Ok((not_below, Some(below))),
                _ => Err(incomplete()),
            };
        }
        let values = literal::rows(one_of.iter().flatten(), |name| literal::value(name))?;
        let mask = masked.as_deref().map_or(Ok(all), constants::value)?;
        let [one, none] = ["OneOf", "NoneOf"].map(|kind| {
            format!("Condition::{kind} {{ argument: {argument}, mask: {mask}, values: {values} }}")
        });
        Ok((one, masked.is_none().then_some(none)))
    }
}

/// Returns the literals of a row's rules: itself, and the one that `otherwise` adds.
fn rule(row: &Rule, kept: u32) -> Result<Vec<String>, String> {
    let only = match row.only.as_deref() {
        None => false,
        Some("x86_64") => true,
        Some(other) => return Err(format!("{}: {other:?} is not a known machine", row.call)),
    };
    let (condition, opposite) = row.conditions(kept)?;
    let errno = |name: &str| -> Result<String, String> {
        Ok(format!(
            "CallAnswer::Errno(Value {{ name: {name:?}, number: {} }})",
            constants::error(name)?
        ))
    };
    let answer = match &row.answer {
        None => "CallAnswer::Allow".to_owned(),
        Some(name) => errno(name)?,
    };
    let why = literal::reason(&row.why, &row.call)?;
    let entry = |condition: &str, answer: &str| {
        format!(
            "CallRule {{ call: {:?}, only_x86_64: {only}, condition: {condition}, answer: {answer}, why: {why} }}",
            row.call
        )
    };
    let mut entries = vec![entry(&condition, &answer)];
    if let Some(name) = &row.otherwise {
        let opposite = opposite.ok_or_else(|| {
            format!("{}: otherwise needs descriptor, or one_of without a mask", row.call)
        })?;
        entries.push(entry(&opposite, &errno(name)?));
    }
    Ok(entries)
}

fn capability(row: &Capability) -> Result<String, String> {
    Ok(format!(
        "HeldCapability {{ capability: Capability {{ name: {:?}, number: {} }}, effective: {}, optional: {}, why: {} }}",
        format!("CAP_{}", row.name),
        constants::capability(&row.name)?,
        row.effective,
        row.optional,
        literal::reason(&row.why, &row.name)?
    ))
}

fn listener(row: &Listener) -> Result<String, String> {
    let why = literal::reason(&row.why, &row.flag)?;
    let accepted_by = &row.accepted_by;
    Ok(format!("Listener {{ flag: {:?}, accepted_by: {accepted_by:?}, why: {why} }}", row.flag))
}

fn landlock(row: &Landlock) -> Result<String, String> {
    let files = match row.files.as_str() {
        "listed" => format!("Files::Listed({})", literal::rows(&row.rules, file_rule)?),
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

fn file_rule(row: &FileRule) -> Result<String, String> {
    let place = match (&row.path, &row.place) {
        (Some(path), None) if path.starts_with('/') => format!("FilePlace::Path({path:?})"),
        (None, Some(place)) => format!("FilePlace::Named({place:?})"),
        _ => return Err("a rule on files needs an absolute path or a place".to_owned()),
    };
    Ok(format!(
        "FileRule {{ place: {place}, rights: {}, optional: {}, why: {} }}",
        literal::variants("FileRight", &row.rights),
        row.optional,
        literal::reason(&row.why, &place)?
    ))
}
