//! `tools.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::literal;

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
    #[serde(default)]
    lists: Vec<String>,
    arguments: Vec<String>,
    tail: Vec<String>,
    exits: Vec<Exit>,
    unknown_feature: Option<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exit {
    status: u8,
    meaning: String,
}

/// The constants, and the keys of the tools.
pub(crate) fn compile(text: &str) -> Result<(String, Vec<String>), String> {
    let tools: BTreeMap<String, Tool> = toml::from_str(text).map_err(|e| e.to_string())?;
    let entries =
        literal::rows(&tools, |(key, tool)| entry(key, tool).map_err(|e| format!("[{key}] {e}")));
    let constants = format!("pub(crate) const TOOLS: &[Tool] = {};\n", entries?);
    Ok((constants, tools.into_keys().collect()))
}

fn entry(key: &str, tool: &Tool) -> Result<String, String> {
    if !tool.path.starts_with('/') || tool.path.contains("..") {
        return Err(format!("path {:?} is not absolute", tool.path));
    }
    if tool.tail.last().map(String::as_str) != Some("{disk}") {
        return Err("the last argument must be {disk}".to_owned());
    }
    let exits = tool.exits.iter().map(|exit| {
        let meaning = literal::variant("Meaning", &exit.meaning);
        format!("Exit {{ status: {}, meaning: {meaning} }}", exit.status)
    });
    Ok(format!(
        "Tool {{ key: {key:?}, path: {path:?}, about: {about:?}, file_systems: {file_systems}, purpose: {purpose}, \
         device: {access}, deadline: Duration::from_secs({deadline}), address_space: {space}, data: {data}, stack: {stack}, \
         pretended: {pretend}, lists: {lists}, arguments: {arguments}, tail: {tail}, exits: {exits}, unknown_feature: {unknown_feature:?}, \
         why: {why} }}",
        path = tool.path,
        about = tool.about,
        file_systems = literal::variants("FsType", &tool.file_systems),
        purpose = literal::variant("Purpose", &tool.purpose),
        access = literal::variant("DeviceAccess", &tool.device),
        deadline = tool.deadline_seconds,
        space = tool.address_space_mib << 20,
        data = tool.data_mib << 20,
        stack = tool.stack_kib << 10,
        pretend = literal::rows(&tool.pretend_ioctls, |name| literal::value(name))?,
        lists = literal::texts(&tool.lists),
        arguments = literal::texts(&tool.arguments),
        tail = literal::texts(&tool.tail),
        exits = literal::slice(exits),
        unknown_feature = tool.unknown_feature,
        why = literal::reason(&tool.why, "the tool")?,
    ))
}
