//! The privileges that a policy's files give, as lines that can be compared.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::Given;
use super::keys::{is_set, list, number, only, required, table, word};
use super::tables::{SETTINGS, iam, rows, settings};
use ebs_csi_document::digest::FILES;
use ebs_csi_document::{Table, Value};

/// The Landlock ABIs that a profile may ask for.
const ABIS: std::ops::RangeInclusive<u64> = 0..=9;
/// What a domain can keep its processes from reaching.
const SCOPES: [&str; 2] = ["abstract-unix-socket", "signal"];

/// Reads a `policy/` directory. The error is one line that names the file.
pub(super) fn read(directory: &Path) -> Result<Given, String> {
    let mut given = Given::default();
    let (mut groups, mut profiles) = (Table::new(), Table::new());
    for path in files(&directory.join("sandbox"), "toml")? {
        let table = parsed(&path, ebs_csi_document::toml)?;
        if path.ends_with("groups.toml") {
            groups = table;
        } else {
            profiles.extend(table);
        }
    }
    if profiles.is_empty() {
        return Err(format!("{}: not a policy directory", directory.display()));
    }
    let sandbox = Sandbox { groups: &groups, profiles: &profiles };
    for (name, profile) in &profiles {
        let own = Own { of: name, given: &mut given };
        sandbox.profile(profile, own).map_err(|why| format!("profile {name}: {why}"))?;
    }
    for name in FILES.into_iter().filter(|name| !name.contains('/') && *name != SETTINGS) {
        rows(name, &parsed(&directory.join(name), ebs_csi_document::toml)?, &mut given);
    }
    settings(&parsed(&directory.join(SETTINGS), ebs_csi_document::toml)?, &mut given)
        .map_err(|why| format!("{SETTINGS}: {why}"))?;
    for path in files(&directory.join("iam"), "json")? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        iam(&name, &parsed(&path, ebs_csi_document::json)?, &mut given)
            .map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let lists = files(&directory.join("supply-chain"), "txt")?;
    for path in lists.iter().chain([&directory.join("mke2fs.conf")]) {
        let name = path.strip_prefix(directory).unwrap_or(path).display().to_string();
        let lines = text(path)?;
        for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            // A crate's name stands before its reason.
            let line = match name.as_str() {
                "mke2fs.conf" => line.trim(),
                _ => line.split_whitespace().next().unwrap_or_default(),
            };
            given.privileges.insert(format!("{name}: {line}"), None);
        }
    }
    Ok(given)
}

/// Returns the text of a file. Not every policy has each file; one that is not there gives nothing.
fn text(path: &Path) -> Result<String, String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|error| format!("{}: {error}", path.display())),
    }
}

fn parsed<T>(path: &Path, parse: fn(&str) -> Result<T, String>) -> Result<T, String> {
    parse(&text(path)?).map_err(|why| format!("{}: {why}", path.display()))
}

fn files(directory: &Path, ending: &str) -> Result<Vec<std::path::PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

struct Sandbox<'a> {
    groups: &'a Table,
    profiles: &'a Table,
}

/// Adds to the privileges of one profile.
struct Own<'a> {
    of: &'a str,
    given: &'a mut Given,
}

impl Own<'_> {
    fn add(&mut self, privilege: impl AsRef<str>) {
        self.given.privileges.insert(format!("{}: {}", self.of, privilege.as_ref()), None);
    }

    fn amount(&mut self, of: &str, number: u64) {
        self.given.privileges.insert(format!("{}: {of}", self.of), Some(number));
    }
}

impl Sandbox<'_> {
    fn profile(&self, profile: &Value, mut own: Own<'_>) -> Result<(), String> {
        let profile = table(profile)?;
        let known = "about use inherits identity capabilities limits kept_descriptors listeners \
                     landlock rules";
        only(profile, known)?;
        identity(table(required(profile, "identity")?)?, &mut own)?;
        let capabilities = table(required(profile, "capabilities")?)?;
        only(capabilities, "permitted")?;
        for row in list(capabilities, "permitted")? {
            let row = table(row)?;
            only(row, "name effective optional why kept")?;
            let name = word(row, "name")?;
            own.add(format!("capability {name} permitted"));
            if is_set(row, "effective")? {
                own.add(format!("capability {name} effective"));
            }
        }
        let limits = table(required(profile, "limits")?)?;
        only(limits, "core nofile")?;
        for name in ["core", "nofile"] {
            // A resource without a row has no limit.
            let value = limits.get(name).map(|row| number(table(row)?, "value")).transpose()?;
            own.amount(&format!("limit {name}"), value.unwrap_or(u64::MAX));
        }
        if profile.contains_key("kept_descriptors") {
            own.amount("descriptors kept", number(profile, "kept_descriptors")?);
        }
        for row in list(profile, "listeners")? {
            let row = table(row)?;
            only(row, "flag accepted_by why")?;
            let by = row.get("accepted_by").map_or_else(String::new, |by| format!(" from {by}"));
            own.add(format!("connections at {}{by}", word(row, "flag")?));
        }
        landlock(table(required(profile, "landlock")?)?, &mut own)?;
        self.calls(profile, &mut own)
    }

    fn calls(&self, profile: &Table, own: &mut Own<'_>) -> Result<(), String> {
        if profile.contains_key("inherits") {
            let parent = word(profile, "inherits")?;
            let parent = self.profiles.get(parent).ok_or("the parent is not there")?;
            // A parent with a parent would not compile.
            let parent = table(parent)?;
            if parent.contains_key("inherits") {
                return Err("a parent inherits, too".to_owned());
            }
            self.calls(parent, own)?;
        }
        for group in list(profile, "use")? {
            let Value::Text(name) = group else { return Err("a group has no name".to_owned()) };
            let group = table(self.groups.get(name).ok_or(format!("there is no group {name}"))?)?;
            only(group, "why kept calls rules")?;
            for call in list(group, "calls")? {
                let Value::Text(call) = call else { return Err("a call has no name".to_owned()) };
                own.add(format!("call {call}"));
            }
            list(group, "rules")?.iter().try_for_each(|row| rule(row, own))?;
        }
        list(profile, "rules")?.iter().try_for_each(|row| rule(row, own))
    }
}

fn identity(identity: &Table, own: &mut Own<'_>) -> Result<(), String> {
    only(identity, "uid gid groups other_unprivileged_uid opens_disks why")?;
    own.add(format!("user {}", number(identity, "uid")?));
    own.add(format!("group {}", number(identity, "gid")?));
    list(identity, "groups")?.iter().for_each(|group| own.add(format!("extra group {group}")));
    for (key, what) in [("other_unprivileged_uid", "another user"), ("opens_disks", "opens disks")]
    {
        if is_set(identity, key)? {
            own.add(what);
        }
    }
    Ok(())
}

fn landlock(landlock: &Table, own: &mut Own<'_>) -> Result<(), String> {
    only(landlock, "floor floor_is_hard why files tcp scopes rules")?;
    let floor = if is_set(landlock, "floor_is_hard")? { number(landlock, "floor")? } else { 0 };
    for abi in ABIS.filter(|abi| *abi >= floor) {
        own.add(format!("starts with Landlock ABI {abi}"));
    }
    match word(landlock, "files")? {
        "listed" => {}
        other => own.add(format!("files {other}")),
    }
    for row in list(landlock, "rules")? {
        let row = table(row)?;
        only(row, "paths path place rights optional why")?;
        let mut places = either(row, "paths", "path")?;
        places.extend(row.get("place").cloned());
        for place in places {
            list(row, "rights")?.iter().for_each(|right| own.add(format!("file {place} {right}")));
        }
    }
    if word(landlock, "tcp")? != "denied" {
        own.add("tcp, bind and connect");
    }
    let scopes = list(landlock, "scopes")?;
    for scope in SCOPES {
        if !scopes.iter().any(|one| *one == Value::Text(scope.to_owned())) {
            own.add(format!("{scope} outside its domain"));
        }
    }
    Ok(())
}

/// Adds calls that are executed. One that is answered with an error gives nothing.
fn rule(row: &Value, own: &mut Own<'_>) -> Result<(), String> {
    let row = table(row)?;
    // Older policies have a row for each call, and say which calls x86-64 alone has.
    let known = "calls call only argument masked one_of and has_bits lacks_bits descriptor itself \
                 answer otherwise when why kept";
    only(row, known)?;
    if row.contains_key("answer") {
        return Ok(());
    }
    let mut condition = String::new();
    for key in
        ["when", "argument", "masked", "and", "has_bits", "lacks_bits", "descriptor", "itself"]
    {
        if let Some(value) = row.get(key) {
            condition += &format!(" {key} {value}");
        }
    }
    for call in either(row, "calls", "call")? {
        let Value::Text(call) = call else { return Err("a call has no name".to_owned()) };
        let call = format!("call {call}{condition}");
        if !row.contains_key("one_of") {
            own.add(&call);
        }
        list(row, "one_of")?.iter().for_each(|value| own.add(format!("{call} is {value}")));
    }
    Ok(())
}

/// Returns the values of a list, or the one value of another key.
fn either(row: &Table, several: &str, one: &str) -> Result<Vec<Value>, String> {
    match row.get(one) {
        Some(value) => Ok(vec![value.clone()]),
        None => Ok(list(row, several)?.to_vec()),
    }
}
