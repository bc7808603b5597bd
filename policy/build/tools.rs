//! `tools.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{constants, literal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    path: String,
    about: String,
    #[serde(rename = "for")]
    file_systems: Vec<String>,
    purpose: String,
    device: String,
    deadline_seconds: u64,
    address_space_mib: u64,
    data_mib: u64,
    stack_kib: u64,
    pretend_ioctls: Vec<String>,
    arguments: Vec<String>,
    tail: Vec<String>,
    #[serde(default)]
    options: Vec<FormatOption>,
    exits: Vec<Exit>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatOption {
    when: String,
    arguments: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exit {
    status: u8,
    meaning: String,
}

/// Returns the variant of `FormatOption` with this name: `BlockSize` for `block-size`. The compiler
/// refuses a variant that does not exist.
fn format_option(name: &str) -> String {
    let words = name.split('-').filter_map(|word| word.split_at_checked(1));
    words.map(|(first, rest)| first.to_ascii_uppercase() + rest).collect()
}

pub(crate) fn file_system(name: &str) -> Result<&'static str, String> {
    match name {
        "ext3" => Ok("FsType::Ext3"),
        "ext4" => Ok("FsType::Ext4"),
        "xfs" => Ok("FsType::Xfs"),
        other => Err(format!("{other:?} is not a known file system")),
    }
}

pub(crate) fn compile(text: &str) -> Result<String, String> {
    let tools: BTreeMap<String, Tool> = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut entries = Vec::new();
    for (key, tool) in &tools {
        entries.push(entry(key, tool).map_err(|e| format!("[{key}] {e}"))?);
    }
    Ok(format!("pub(crate) const TOOLS: &[Tool] = {};\n", literal::slice(entries)))
}

fn entry(key: &str, tool: &Tool) -> Result<String, String> {
    if !tool.path.starts_with('/') || tool.path.contains("..") {
        return Err(format!("path {:?} is not absolute", tool.path));
    }
    if tool.tail.last().map(String::as_str) != Some("{disk}") {
        return Err("the last argument must be {disk}".to_owned());
    }
    let file_systems: Result<Vec<_>, _> =
        tool.file_systems.iter().map(|name| file_system(name)).collect();
    let purpose = match tool.purpose.as_str() {
        "format" => "Purpose::Format",
        "check" => "Purpose::Check",
        "grow" => "Purpose::Grow",
        other => return Err(format!("{other:?} is not a known purpose")),
    };
    let access = match tool.device.as_str() {
        "read-only" => "DeviceAccess::ReadOnly",
        "read-write" => "DeviceAccess::ReadWrite",
        other => return Err(format!("{other:?} is not a known device access")),
    };
    let pretend: Result<Vec<_>, String> = tool
        .pretend_ioctls
        .iter()
        .map(|name| Ok(format!("Value {{ name: {name:?}, number: {} }}", constants::value(name)?)))
        .collect();
    let options = tool
        .options
        .iter()
        .map(|option| {
            format!(
                "OptionalArguments {{ when: FormatOption::{}, arguments: {} }}",
                format_option(&option.when),
                literal::texts(&option.arguments)
            )
        })
        .collect::<Vec<_>>();
    let exits: Result<Vec<_>, String> = tool
        .exits
        .iter()
        .map(|exit| {
            let meaning = match exit.meaning.as_str() {
                "done" => "Done",
                "clean" => "Clean",
                "repaired" => "Repaired",
                "uncorrectable" => "Uncorrectable",
                other => return Err(format!("{other:?} is not a known meaning")),
            };
            Ok(format!("Exit {{ status: {}, meaning: Meaning::{meaning} }}", exit.status))
        })
        .collect();
    Ok(format!(
        "Tool {{ key: {key:?}, path: {path:?}, about: {about:?}, file_systems: {file_systems}, purpose: {purpose}, \
         device: {access}, deadline: Duration::from_secs({deadline}), address_space: {space}, data: {data}, stack: {stack}, \
         pretended: {pretend}, arguments: {arguments}, options: {options}, tail: {tail}, exits: {exits}, why: {why} }}",
        path = tool.path,
        about = tool.about,
        file_systems = literal::slice(file_systems?),
        deadline = tool.deadline_seconds,
        space = tool.address_space_mib << 20,
        data = tool.data_mib << 20,
        stack = tool.stack_kib << 10,
        pretend = literal::slice(pretend?),
        arguments = literal::texts(&tool.arguments),
        options = literal::slice(options),
        tail = literal::texts(&tool.tail),
        exits = literal::slice(exits?),
        why = literal::reason(&tool.why, "the tool")?,
    ))
}
