//! Owners and modes of the unix sockets at which a process serves.

use ebs_csi_policy::profile::socket_file::{Owner, SocketRow};
use ebs_csi_policy::profile::{self, Profile};

use crate::answer::{Answer, Verdict};
use crate::process::{Process, SocketOwner};

pub(crate) fn expected(profile: &Profile) -> String {
    let rows = profile.sockets().map(|row| {
        let owner = match row.owner {
            Owner::Root => "root",
            Owner::RootOrOwn => "root or its own user",
        };
        let group = row
            .gid()
            .map_or_else(|| "a group of the driver".to_owned(), |gid| format!("group {gid}"));
        format!("{} mode {:o}, of {owner} and {group}", row.flag, row.mode)
    });
    rows.collect::<Vec<_>>().join("; ")
}

/// Returns the rows of a profile, each with the paths that the process's arguments name.
fn paths(
    process: &Process,
    profile: &Profile,
) -> impl Iterator<Item = (&'static SocketRow, String)> {
    profile.sockets().flat_map(move |row| {
        let paths = process.values_of(row.flag).filter_map(|value| row.path(value));
        paths.map(move |path| (row, path)).collect::<Vec<_>>()
    })
}

pub(crate) fn answer(process: &Process, profile: &'static Profile) -> Answer {
    let evidence = format!("/proc/{}/root", process.pid);
    let (mut wrong, mut unseen, mut right) = (Vec::new(), Vec::new(), Vec::new());
    for (row, path) in paths(process, profile) {
        match process.seen.socket_files.iter().find(|(known, _)| *known == path) {
            Some((_, Ok(found))) if is_right(process, row, *found) => {
                right.push(found.shown(&path));
            }
            Some((_, Ok(found))) => wrong.push(found.shown(&path)),
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

fn is_right(process: &Process, row: &SocketRow, found: SocketOwner) -> bool {
    let status = &process.status;
    let is_owner = found.uid == 0 || row.owner == Owner::RootOrOwn && found.uid == status.uids[1];
    let is_group = match row.gid() {
        Some(gid) => found.gid == gid,
        None => {
            let of_driver = profile::ALL.iter().map(|one| one.identity.gid);
            let own = status.gids.iter().chain(&status.groups).copied();
            of_driver.chain(own).any(|gid| gid == found.gid)
        }
    };
    found.is_socket && found.mode == row.mode && is_owner && is_group
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::process_status::Status;
    use ebs_csi_policy::profile::socket_file::SOCKETS;

    #[test]
    fn each_socket_row_allows_and_refuses() {
        let process = Process {
            status: Status { uids: [1500; 4], gids: [1500; 4], ..Status::default() },
            ..Process::default()
        };
        for row in SOCKETS {
            let owned = |uid, gid, mode| SocketOwner { is_socket: true, uid, gid, mode };
            let right = |found| is_right(&process, row, found);
            let is_own = row.owner == Owner::RootOrOwn;
            let gid = row.gid().unwrap_or(1500);
            let of_driver = profile::NODE_AGENT.identity.gid;
            for (found, expected) in [
                (owned(0, gid, row.mode), true),
                (owned(1500, gid, row.mode), is_own),
                (owned(1501, gid, row.mode), false),
                (owned(0, of_driver, row.mode), true),
                (owned(0, 100, row.mode), false),
                (owned(0, 0, row.mode), row.group.is_none()),
                (SocketOwner { is_socket: false, ..owned(0, gid, row.mode) }, false),
            ] {
                let case = format!("{} {}: {}", row.profile, row.flag, found.shown("/s"));
                assert_eq!(right(found), expected, "{case}");
            }
            // Each permission more, and each less.
            for bit in (0..12).map(|bit| 1 << bit) {
                assert!(!right(owned(0, gid, row.mode ^ bit)), "{} {bit:o}", row.flag);
            }
        }
        assert_eq!(SOCKETS.len(), 6);
    }

    #[test]
    fn paths_are_those_of_flags_with_rows() {
        let arguments = [
            "x",
            "--endpoint=unix:///csi.sock",
            "--endpoint=tcp://127.0.0.1:1",
            "--plugin-registration-path",
            "/registration/",
            "--listen=unix:///helper.sock",
        ];
        let arguments = arguments.map(str::to_owned).to_vec();
        let process = Process { arguments, ..Process::default() };
        let of = |profile| paths(&process, profile).map(|(_, path)| path).collect::<Vec<_>>();
        let registration = "/registration/ebs.csi.aws.com-reg@localhost.sock";
        assert_eq!(of(profile::NODE_AGENT), ["/csi.sock", registration]);
        assert_eq!(of(profile::BROKER), ["/helper.sock"]);
        assert_eq!(of(profile::OPENER), [""; 0]);
    }
}
