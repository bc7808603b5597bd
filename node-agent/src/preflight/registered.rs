//! Which process serves this driver's name on the node now.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use ebs_csi_proto::DRIVER_NAME;

use super::{Check, Host};
use crate::registration::{FORMER_SOCKET, SOCKET};

pub(super) fn checks(host: &Host) -> Vec<Check> {
    let mut checks = match std::fs::read_dir(host.kubelet("plugins_registry")) {
        Ok(entries) => {
            let mut names: Vec<String> = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| name.starts_with(DRIVER_NAME))
                .collect();
            names.sort();
            names
                .iter()
                .map(|name| registration(&host.kubelet("plugins_registry").join(name), name))
                .collect()
        }
        // Kubelet's directory has its own row.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![Check::warn(
            "registration",
            super::unseen(&error),
            "look as root",
        )],
    };
    if checks.is_empty() {
        checks.push(Check::ok("registration", "nobody has this driver's name"));
    }
    let socket = host.kubelet("plugins").join(DRIVER_NAME).join("csi.sock");
    checks.push(match asked(&socket) {
        Answer::Serves => Check::ok("csi socket", format!("{} is served", socket.display())),
        Answer::Nobody => Check::ok("csi socket", "left behind; the agent replaces it"),
        Answer::Absent => Check::ok("csi socket", "none"),
        Answer::Unknown(why) => Check::warn("csi socket", why, "look as root"),
    });
    checks
}

fn registration(socket: &Path, name: &str) -> Check {
    let what = "registration";
    match (asked(socket), name) {
        (Answer::Serves, SOCKET) => Check::ok(what, format!("{name}: this driver's agent serves")),
        (Answer::Serves, FORMER_SOCKET) => Check::warn(
            what,
            format!("{name}: a stock registrar serves, as the Go driver has it"),
            "the agent takes its place; remove the other driver's DaemonSet in the same change",
        ),
        (Answer::Serves, _) => Check::warn(
            what,
            format!("{name}: somebody serves under this driver's name"),
            "kubelet keeps whoever registers last: remove one of them",
        ),
        (Answer::Nobody | Answer::Absent, SOCKET | FORMER_SOCKET) => {
            Check::ok(what, format!("{name}: left behind; the agent removes it"))
        }
        (Answer::Nobody | Answer::Absent, _) => Check::warn(
            what,
            format!("{name}: left behind"),
            "remove it: kubelet dials it again and again",
        ),
        (Answer::Unknown(why), _) => Check::warn(what, format!("{name}: {why}"), "look as root"),
    }
}

enum Answer {
    Serves,
    /// The socket exists, but no process listens.
    Nobody,
    Absent,
    Unknown(String),
}

fn asked(socket: &Path) -> Answer {
    match UnixStream::connect(socket) {
        Ok(_) => Answer::Serves,
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => Answer::Nobody,
            io::ErrorKind::NotFound => Answer::Absent,
            _ => Answer::Unknown(super::unseen(&error)),
        },
    }
}
