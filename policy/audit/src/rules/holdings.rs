//! Whether what a process has open is what its profile gives it.

use ebs_csi_policy::profile::{FilePlace, FileRight, Files, Profile};
use ebs_csi_policy::tool;

use crate::answer::{Answer, Verdict};
use crate::process::Process;
use crate::process::open_files::{FileAccess, OpenFile, OpenFileKind};
use crate::rules::sockets::{STANDARD, wrong_socket};
use crate::rules::{files, may_hold_disks};

/// The socket beside which a helper without a unix socket keeps its records about disks.
const DEFAULT_SOCKET: &str = "/run/ebs-csi/helper.sock";
/// Where the places are that a process finds without being told.
const KNOWN_PLACES: [(&str, &[&str]); 2] = [
    ("pci-devices", &["/sys/devices"]),
    ("service-account", &["/run/secrets", "/var/run/secrets"]),
];

/// Answers the rules on sockets, files and disks.
pub(crate) fn answers(process: &Process, profile: &'static Profile) -> [Answer; 3] {
    let mut wrong: [Vec<String>; 3] = Default::default();
    let (mut held, mut unseen) = ([0; 3], None);
    for file in &process.open {
        let of = match &file.kind {
            OpenFileKind::Socket(_) => 0,
            OpenFileKind::Disk => 2,
            _ => 1,
        };
        held[of] += 1;
        let found = match &file.kind {
            OpenFileKind::Socket(socket) => {
                unseen = unseen.or_else(|| Some((file.descriptor, socket.unseen.clone()?)));
                wrong_socket(process, profile, file.descriptor, socket)
            }
            _ if may_hold(process, profile, file) => None,
            _ => Some(file.path.clone()),
        };
        wrong[of].extend(found.map(|found| format!("{found} (descriptor {})", file.descriptor)));
    }
    let evidence = format!("/proc/{}/fd", process.pid);
    let [sockets, files, disks] = &wrong;
    let right = |of: usize, what: &str| format!("{} {what}", held[of]);
    let sockets = match unseen {
        Some((descriptor, why)) if sockets.is_empty() => {
            let found = format!("descriptor {descriptor}: {why}");
            Answer::new(profile, "sockets", Verdict::NotSeen, found, evidence.clone())
        }
        _ => Answer::of_findings(profile, "sockets", sockets, right(0, "open"), evidence.clone()),
    };
    let open_disks: Vec<_> = process
        .open
        .iter()
        .filter(|file| matches!(file.kind, OpenFileKind::Disk))
        .map(|file| format!("{} (descriptor {})", file.path, file.descriptor))
        .collect();
    let held_disks = if open_disks.is_empty() { "none".to_owned() } else { open_disks.join("; ") };
    [
        sockets,
        Answer::of_findings(profile, "files", files, right(1, "open"), evidence.clone()),
        Answer::of_findings(profile, "disks", disks, held_disks, evidence),
    ]
}

/// Returns whether a process may hold a file or device: its user may open it and its Landlock rules
/// allow it, or whoever started the process gave it.
fn may_hold(process: &Process, profile: &'static Profile, file: &OpenFile) -> bool {
    let files = files(profile);
    let is_standard = STANDARD.contains(&file.descriptor);
    let access = match &file.kind {
        // The opener checks which disk a process gets.
        OpenFileKind::Disk => return may_hold_disks(profile),
        OpenFileKind::Null | OpenFileKind::Socket(_) => return true,
        // A format is made again in a file that stands for the disk. The helper makes it as root,
        // on a file system that is mounted nowhere, and nobody may open it.
        OpenFileKind::File(access)
            if access.is_nameless
                && access.owner.uid == 0
                && access.owner.mode == 0
                && file.path.starts_with("/#") =>
        {
            return may_hold_disks(profile);
        }
        // A log, or a terminal.
        OpenFileKind::File(access) if is_standard && access.write && !access.read => return true,
        OpenFileKind::OtherDevice(_) if is_standard => return true,
        OpenFileKind::File(access) | OpenFileKind::OtherDevice(access) => access,
    };
    is_named(process, &file.path)
        || may_open(process, access) && is_listed(process, files, &file.path, access)
}

/// Returns whether the process's arguments name the file, or one beside it that its name begins
/// with: `/run/helper.sock` stands for `/run/helper.sock.read-only`, too.
fn is_named(process: &Process, path: &str) -> bool {
    let mut named = process.named_paths.iter().map(String::as_str).chain([DEFAULT_SOCKET]);
    named.any(|named| {
        path.strip_prefix(named).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Returns whether the permission bits let the process open the file.
fn may_open(process: &Process, access: &FileAccess) -> bool {
    let FileAccess { read, write, owner, .. } = access;
    let status = &process.status;
    let shift = match () {
        () if status.uids[3] == owner.uid => 6,
        () if status.gids[3] == owner.gid || status.groups.contains(&owner.gid) => 3,
        () => 0,
    };
    let bits = owner.mode >> shift;
    (!read || bits & 0o4 != 0) && (!write || bits & 0o2 != 0)
}

/// Returns whether a rule on files has the path and the rights.
fn is_listed(process: &Process, files: Files, path: &str, access: &FileAccess) -> bool {
    let Files::Listed(rules) = files else { return matches!(files, Files::Free) };
    let has = |right| {
        rules.iter().filter(|rule| rule.rights.contains(&right)).any(|rule| match rule.place {
            FilePlace::Path(place) => is_beneath(process, path, place),
            FilePlace::Named("tools" | "tool") => tool::TOOLS.iter().any(|tool| tool.path == path),
            FilePlace::Named(name) => match KNOWN_PLACES.iter().find(|(known, _)| *known == name) {
                Some((_, places)) => places.iter().any(|place| is_beneath(process, path, place)),
                // The directories of the files that the arguments name.
                None => process.named_paths.iter().any(|named| {
                    let parent = named.rsplit_once('/').map_or("", |(parent, _)| parent);
                    !parent.is_empty() && is_beneath(process, path, parent)
                }),
            },
        })
    };
    (!access.read || has(FileRight::ReadFile)) && (!access.write || has(FileRight::WriteFile))
}

fn is_beneath(process: &Process, path: &str, place: &str) -> bool {
    if let Some(rest) = place.strip_prefix("/proc/self") {
        // Its number is another one in its own namespace.
        let numbers = [Some(process.pid), process.status.own_number];
        return numbers.into_iter().flatten().any(|number| {
            path.strip_prefix(&format!("/proc/{number}{rest}")).is_some_and(is_end_of_name)
        });
    }
    path.strip_prefix(place).is_some_and(is_end_of_name)
}

fn is_end_of_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::open_files::Socket;
    use ebs_csi_policy::process_status::Status;
    use ebs_csi_policy::profile::{self, NodeOwner};

    /// Returns what the rules on open files say is wrong.
    fn wrong(process: &Process, profile: &'static Profile) -> Vec<String> {
        let answers = answers(process, profile).into_iter();
        let wrong = answers.filter(|answer| answer.verdict == Verdict::Deviates);
        wrong.map(|answer| answer.to_string()).collect()
    }

    fn process(profile: &Profile, arguments: &[&str], open: Vec<OpenFile>) -> Process {
        let identity = &profile.identity;
        Process {
            pid: 40,
            status: Status {
                uids: [identity.uid; 4],
                gids: [identity.gid; 4],
                own_number: Some(2),
                ..Status::default()
            },
            arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
            named_paths: vec!["/run/helper.sock".to_owned(), "/facts/labels".to_owned()],
            open,
            ..Process::default()
        }
    }

    #[test]
    fn socket_that_hides_state_is_not_seen() {
        let unseen = Some("no such process".to_owned());
        let socket = Socket { protocol: "TCP".to_owned(), unseen, ..Socket::default() };
        let kind = OpenFileKind::Socket(socket);
        let open = vec![OpenFile { descriptor: 7, path: "socket:[1]".to_owned(), kind }];
        let arguments = ["x", "--http-endpoint=:9808"];
        let process = process(profile::NODE_AGENT, &arguments, open);
        let [sockets, ..] = answers(&process, profile::NODE_AGENT);
        assert_eq!(sockets.verdict, Verdict::NotSeen, "{sockets}");
    }

    #[test]
    fn files_beyond_profile_are_deviations() {
        const READ: (bool, bool) = (true, false);
        const WRITE: (bool, bool) = (false, true);
        for (profile, path, (read, write), mode, right) in [
            (profile::CONTROLLER, "/etc/resolv.conf", READ, 0o644, true),
            (profile::CONTROLLER, "/etc/shadow", READ, 0o640, false),
            (profile::CONTROLLER, "/etc/hosts", WRITE, 0o666, false),
            (profile::CONTROLLER, "/var/lib/x", READ, 0o644, false),
            (profile::CONTROLLER, "/proc/40/status", READ, 0o444, true),
            (profile::CONTROLLER, "/proc/2/task/2/stat", READ, 0o444, true),
            (profile::CONTROLLER, "/proc/1/environ", READ, 0o444, false),
            (profile::NODE_AGENT, "/etc/hosts", READ, 0o644, false),
            (profile::NODE_AGENT, "/facts/..data/labels", READ, 0o644, true),
            (profile::NODE_AGENT, "/sys/devices/pci0/serial", READ, 0o444, true),
            (profile::BROKER, "/proc/self/mountinfo", READ, 0o444, true),
            (profile::BROKER, "/etc/shadow", READ, 0o640, false),
            (profile::BROKER, "/run/helper.sock.read-only", WRITE, 0o600, true),
            (profile::BROKER, "/run/helper.socket", WRITE, 0o600, false),
            (profile::BROKER, "/run/ebs-csi/helper.sock.read-only", WRITE, 0o600, true),
            (profile::DIRECTORIES, "/etc/shadow", READ, 0o640, false),
            (profile::RUNNER, "/proc/9/mem", READ, 0o666, true),
            (profile::RUNNER, "/usr/sbin/mke2fs", READ, 0o755, true),
            (profile::TOOL, "/usr/lib64/libc.so", READ, 0o644, true),
            (profile::TOOL, "/usr/lib64/libc.so", WRITE, 0o666, false),
            (profile::TOOL, "/etc/hosts", READ, 0o644, false),
        ] {
            let owner = NodeOwner { uid: 0, gid: 42, mode };
            let access = FileAccess { read, write, owner, is_nameless: false };
            let open = |descriptor, kind| OpenFile { descriptor, path: path.to_owned(), kind };
            let file = process(profile, &[], vec![open(7, OpenFileKind::File(access))]);
            let found = wrong(&file, profile);
            assert_eq!(found.is_empty(), right, "{} {path}: {found:?}", profile.name);
            // Whoever starts a process chooses the file of its log.
            let log = process(profile, &[], vec![open(1, OpenFileKind::File(access))]);
            assert_eq!(wrong(&log, profile).is_empty(), right || write, "{path}");
        }
    }

    #[test]
    fn disks_are_held_by_processes_of_helper_alone() {
        let owner = NodeOwner { uid: 0, gid: 0, mode: 0 };
        let nameless = FileAccess { read: true, write: true, owner, is_nameless: true };
        for kind in [OpenFileKind::Disk, OpenFileKind::File(nameless)] {
            let file = || OpenFile { descriptor: 3, path: "/#2".to_owned(), kind: kind.clone() };
            let holders = profile::ALL
                .into_iter()
                .filter(|profile| wrong(&process(profile, &[], vec![file()]), profile).is_empty());
            let names: Vec<_> = holders.map(|profile| profile.name).collect();
            assert_eq!(names, ["supervisor", "broker", "opener", "runner", "tool"], "{kind:?}");
        }
    }
}
