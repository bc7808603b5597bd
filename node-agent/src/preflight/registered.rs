//! Which process serves this driver's name on the node now.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ebs_csi_proto::DRIVER_NAME;

use super::{Check, Host};
use crate::registration::{FORMER_SOCKET, SOCKET};

pub(super) fn checks(host: &Host) -> Vec<Check> {
    let registry = host.kubelet("plugins_registry");
    let mut checks = match sockets(&registry) {
        Ok(names) => names.iter().map(|name| registration(&registry, name)).collect(),
        // Kubelet's directory has its own row.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            vec![Check::warn("registration", super::describe_error(&error), "look as root")]
        }
    };
    if checks.is_empty() {
        checks.push(Check::ok("registration", "nobody has this driver's name"));
    }
    let socket = host.kubelet("plugins").join(DRIVER_NAME).join("csi.sock");
    checks.push(match socket_state(&socket) {
        SocketState::Serves => Check::ok("csi socket", format!("{} is served", socket.display())),
        SocketState::Nobody => Check::ok("csi socket", "left behind; the agent replaces it"),
        SocketState::Absent => Check::ok("csi socket", "none"),
        SocketState::Unknown(why) => Check::warn("csi socket", why, "look as root"),
    });
    checks
}

/// The sockets of this driver's name, relative to kubelet's directory. Kubelet also dials what lies
/// in its subdirectories; an agent that starts as its own user has its socket in one.
fn sockets(registry: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(registry)? {
        let entry = entry?;
        found.push(entry.path());
        if entry.file_type()?.is_dir() {
            let inner = std::fs::read_dir(entry.path()).into_iter().flatten();
            found.extend(inner.flatten().map(|entry| entry.path()));
        }
    }
    let has_our_name = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(DRIVER_NAME))
    };
    found.retain(|path| {
        has_our_name(path) && path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket())
    });
    found.sort();
    let relative = found.iter().filter_map(|path| path.strip_prefix(registry).ok());
    Ok(relative.map(Path::to_path_buf).collect())
}

fn registration(registry: &Path, socket: &Path) -> Check {
    let what = "registration";
    let name = socket.display();
    let file_name = socket.file_name().and_then(|name| name.to_str());
    match (socket_state(&registry.join(socket)), file_name.unwrap_or_default()) {
        (SocketState::Serves, SOCKET) => {
            Check::ok(what, format!("{name}: this driver's agent serves"))
        }
        (SocketState::Serves, FORMER_SOCKET) => Check::warn(
            what,
            format!("{name}: a stock registrar serves, as the Go driver has it"),
            "the agent takes its place; remove the other driver's DaemonSet in the same change",
        ),
        (SocketState::Serves, _) => Check::warn(
            what,
            format!("{name}: somebody serves under this driver's name"),
            "kubelet keeps whoever registers last: remove one of them",
        ),
        (SocketState::Nobody | SocketState::Absent, SOCKET | FORMER_SOCKET) => {
            Check::ok(what, format!("{name}: left behind; the agent removes it"))
        }
        (SocketState::Nobody | SocketState::Absent, _) => Check::warn(
            what,
            format!("{name}: left behind"),
            "remove it: kubelet dials it again and again",
        ),
        (SocketState::Unknown(why), _) => {
            Check::warn(what, format!("{name}: {why}"), "look as root")
        }
    }
}

enum SocketState {
    Serves,
    /// The socket exists, but no process listens.
    Nobody,
    Absent,
    Unknown(String),
}

fn socket_state(socket: &Path) -> SocketState {
    match UnixStream::connect(socket) {
        Ok(_) => SocketState::Serves,
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => SocketState::Nobody,
            io::ErrorKind::NotFound => SocketState::Absent,
            _ => SocketState::Unknown(super::describe_error(&error)),
        },
    }
}
