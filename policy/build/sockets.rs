//! `sockets.toml`.

use serde::Deserialize;

use crate::literal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sockets {
    sockets: Vec<Socket>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Socket {
    profile: String,
    flag: String,
    file: Option<String>,
    owner: String,
    group: String,
    mode: String,
    #[serde(default)]
    peers: Vec<String>,
    peers_flag: Option<String>,
    why: String,
}

pub(crate) fn compile(text: &str, profiles: &[&str]) -> Result<String, String> {
    let file: Sockets = toml::from_str(text).map_err(|e| e.to_string())?;
    let rows = literal::rows(&file.sockets, |row| {
        let Socket { profile, flag, file, peers_flag, .. } = row;
        literal::known([profile].into_iter().chain(&row.peers), profiles)?;
        let group = match row.group.as_str() {
            "driver" => "None".to_owned(),
            group => {
                literal::known([group], profiles)?;
                format!("Some({group:?})")
            }
        };
        let mode = u32::from_str_radix(&row.mode, 8).map_err(|e| format!("mode: {e}"))?;
        if mode & !0o660 != 0 {
            return Err(format!("mode {mode:o} of {profile} {flag} is for everybody"));
        }
        Ok(format!(
            "SocketRow {{ profile: {profile:?}, flag: {flag:?}, file: {file:?}, owner: {owner}, group: {group}, \
             mode: {mode:#o}, peers: {peers}, peers_flag: {peers_flag:?}, why: {why} }}",
            owner = literal::variant("Owner", &row.owner),
            peers = literal::texts(&row.peers),
            why = literal::reason(&row.why, flag)?
        ))
    })?;
    Ok(format!("pub(crate) const SOCKETS: &[SocketRow] = {rows};\n"))
}
