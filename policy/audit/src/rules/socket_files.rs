//! Owners and modes of the unix sockets at which a process serves.

use ebs_csi_policy::profile::{self, Profile};

use crate::answer::{Answer, Verdict};
use crate::process::{Process, SocketOwner};

/// The permission bits of each socket.
const MODE: u32 = 0o660;

/// Returns the flag with the addresses of a profile's sockets.
pub(crate) fn flag(profile: &Profile) -> Option<&'static str> {
    match profile.name {
        "broker" => Some("--listen"),
        "controller" | "node-agent" | "router" => Some("--endpoint"),
        _ => None,
    }
}

pub(crate) fn expected(profile: &Profile) -> String {
    if profile.name == profile::BROKER.name {
        return format!("mode {MODE:o}, of root and group {}", profile::NODE_AGENT.identity.gid);
    }
    format!("mode {MODE:o}, of root or its own user, and of a group of the driver")
}

pub(crate) fn answer(process: &Process, profile: &'static Profile) -> Answer {
    let evidence = format!("/proc/{}/root", process.pid);
    let values = flag(profile).into_iter().flat_map(|flag| process.values_of(flag));
    let (mut wrong, mut unseen, mut right) = (Vec::new(), Vec::new(), Vec::new());
    for path in values.filter_map(|value| value.strip_prefix("unix://")) {
        match process.seen.socket_files.iter().find(|(known, _)| known == path) {
            Some((_, Ok(found))) if is_right(process, profile, *found) => {
                right.push(found.shown(path));
            }
            Some((_, Ok(found))) => wrong.push(found.shown(path)),
            Some((_, Err(why))) => unseen.push(format!("{path}: {why}")),
            None => unseen.push(format!("{path}: not read")),
        }
    }
    if wrong.is_empty() && !unseen.is_empty() {
        let found = unseen.join("; ");
        return Answer::new(profile, "socket-files", Verdict::NotSeen, found, evidence);
    }
    let right = if right.is_empty() { "no unix socket".to_owned() } else { right.join("; ") };
    Answer::of_findings(profile, "socket-files", &wrong, right, evidence)
}

impl SocketOwner {
    fn shown(self, path: &str) -> String {
        let Self { is_socket, uid, gid, mode } = self;
        let what = if is_socket { "" } else { " (no socket)" };
        format!("{path}{what} of {uid}:{gid}, mode {mode:o}")
    }
}

fn is_right(process: &Process, profile: &Profile, found: SocketOwner) -> bool {
    let status = &process.status;
    let (owners, groups) = if profile.name == profile::BROKER.name {
        (vec![0], vec![profile::NODE_AGENT.identity.gid])
    } else {
        let of_driver = profile::ALL.iter().map(|one| one.identity.gid);
        let own = status.gids.iter().chain(&status.groups).copied();
        (vec![0, status.uids[1]], of_driver.chain(own).collect())
    };
    found.is_socket
        && found.mode == MODE
        && owners.contains(&found.uid)
        && groups.contains(&found.gid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::process_status::Status;

    #[test]
    fn socket_of_others_or_wider_mode_is_wrong() {
        let process = Process {
            status: Status { uids: [1500; 4], gids: [1500; 4], ..Status::default() },
            ..Process::default()
        };
        for (profile, (uid, gid), mode, is_socket, right) in [
            (profile::BROKER, (0, 65524), 0o660, true, true),
            (profile::BROKER, (0, 65524), 0o666, true, false),
            (profile::BROKER, (0, 65524), 0o600, true, false),
            (profile::BROKER, (0, 65524), 0o660, false, false),
            (profile::BROKER, (0, 0), 0o660, true, false),
            (profile::BROKER, (65524, 65524), 0o660, true, false),
            (profile::CONTROLLER, (1500, 1500), 0o660, true, true),
            (profile::CONTROLLER, (0, 65529), 0o660, true, true),
            (profile::CONTROLLER, (1501, 1500), 0o660, true, false),
            (profile::CONTROLLER, (1500, 100), 0o660, true, false),
        ] {
            let found = SocketOwner { is_socket, uid, gid, mode };
            assert_eq!(is_right(&process, profile, found), right, "{}", found.shown("/s"));
        }
    }
}
