//! The namespaces of a process, and whether its mounts reach the node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ebs_csi_policy::profile::Profile;
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};

use crate::answer::{Answer, Verdict};
use crate::process::{HELPER, Process};
use crate::rules;
use crate::sys::open_in_root;

/// The kinds of namespaces, as the kernel names them.
const KINDS: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
/// Those that the helper makes anew.
const OWN: [&str; 3] = ["ipc", "net", "uts"];
/// What the policy says.
pub(crate) const EXPECTED: &str =
    "ipc, net and uts namespaces that are not the node's, and all of them the supervisor's";
/// The directories that hold the places of volumes, beneath the kubelet root.
const PLACES: [&str; 2] = ["plugins/kubernetes.io/csi", "pods"];
const DEFAULT_ROOT: &str = "/var/lib/kubelet";
/// The longest table of mounts that is read: 100,000 mounts of 640 bytes.
const MOST_MOUNTS: u64 = 64 << 20;

/// The namespaces of a process by their kinds; several of a kind where its threads differ.
pub(crate) type Namespaces = BTreeMap<&'static str, BTreeSet<String>>;

/// Returns whether the processes of a profile have namespaces of their own.
pub(crate) fn has_own(profile: &Profile) -> bool {
    profile.name == "tool" || rules::programs(profile) == HELPER
}

/// Reads the namespaces of some directories of `/proc`.
fn read<'a>(directories: impl IntoIterator<Item = &'a Path>) -> io::Result<Namespaces> {
    let mut found = Namespaces::new();
    for directory in directories {
        for kind in KINDS {
            let name = fs::read_link(directory.join("ns").join(kind))?;
            found.entry(kind).or_default().insert(name.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// Reads the namespaces of all threads of a process.
pub(crate) fn of_process(process: &Process) -> io::Result<Namespaces> {
    let directories: Vec<_> =
        process.threads.iter().map(|thread| process.directory_of(thread.number)).collect();
    read(directories.iter().map(std::path::PathBuf::as_path))
}

/// Returns the namespaces of the node, and where they were read: those of process 1, and this
/// process's own, which are the same outside a container.
fn of_node() -> io::Result<(Namespaces, &'static str)> {
    let own = Path::new("/proc/self");
    match read([own, Path::new("/proc/1")]) {
        Ok(found) => Ok((found, "those of the auditor and process 1")),
        Err(_) => Ok((read([own])?, "those of the auditor; process 1 does not show its own")),
    }
}

pub(crate) fn answer(
    process: &Process,
    profile: &'static Profile,
    supervisor: Option<&Process>,
) -> Answer {
    let mut evidence = format!("/proc/{}/task/*/ns", process.pid);
    let read = of_process(process)
        .and_then(|own| Ok((own, of_node()?)))
        .and_then(|(own, node)| Ok((own, node, supervisor.map(of_process).transpose()?)));
    let (own, (node, whose), parent) = match read {
        Ok(read) => read,
        Err(error) => {
            let found = error.to_string();
            return Answer::new(profile, "namespaces", Verdict::NotSeen, found, evidence);
        }
    };
    evidence += &format!(", compared with {whose}");
    let wrong = differences(&own, &node, parent.as_ref());
    let shown: Vec<_> = own.values().flatten().map(String::as_str).collect();
    Answer::of_findings(profile, "namespaces", &wrong, shown.join(" "), evidence)
}

fn differences(
    own: &Namespaces,
    node: &Namespaces,
    supervisor: Option<&Namespaces>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (kind, names) in own {
        let shared =
            |other: &Namespaces| other.get(kind).is_some_and(|theirs| !theirs.is_disjoint(names));
        if names.len() != 1 {
            wrong.push(format!("threads in {} {kind} namespaces", names.len()));
        }
        if OWN.contains(kind) && shared(node) {
            wrong.push(format!("the node's {kind} namespace"));
        }
        if supervisor.is_some_and(|parent| !shared(parent)) {
            wrong.push(format!("another {kind} namespace than the supervisor's"));
        }
    }
    wrong
}

/// Answers whether what the process mounts for volumes is seen outside its mount namespace.
pub(crate) fn propagation(process: &Process, profile: &'static Profile) -> Answer {
    let evidence = format!("/proc/{}/mountinfo", process.pid);
    let root = process.values_of("--kubelet-root").last().unwrap_or(DEFAULT_ROOT).to_owned();
    let held = PLACES.iter().map(|place| held(process, format!("{root}/{place}")));
    let held: io::Result<Vec<_>> = held.collect();
    let shared = held.and_then(|held| Ok((held, shared_mounts(process)?)));
    let (held, shared) = match shared {
        Ok(read) => read,
        Err(error) => {
            let found = error.to_string();
            return Answer::new(profile, "propagation", Verdict::NotSeen, found, evidence);
        }
    };
    let wrong: Vec<_> = held
        .iter()
        .filter(|(_, id)| !shared.contains(id))
        .map(|(place, _)| format!("a private mount at {place}"))
        .collect();
    let right = held.iter().map(|(place, _)| place.as_str()).collect::<Vec<_>>().join(", ");
    Answer::of_findings(profile, "propagation", &wrong, right, evidence)
}

/// Returns the place, or the deepest directory above it that exists, and the number of its mount.
fn held(process: &Process, mut place: String) -> io::Result<(String, u64)> {
    loop {
        match mount_of(process, &place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && place.len() > 1 => {
                let parent = place.rfind('/').unwrap_or_default();
                place.truncate(parent.max(1));
            }
            other => return other.map(|id| (place, id)),
        }
    }
}

/// Returns the number of the mount that a process finds at a path.
fn mount_of(process: &Process, path: &str) -> io::Result<u64> {
    let directory = open_in_root(process.pid, path, OFlags::DIRECTORY)?;
    let found = statx(&directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(io::Error::other("this kernel does not number mounts (it is older than 5.8)"));
    }
    Ok(found.stx_mnt_id)
}

/// Returns the numbers of the mounts beneath which mounts propagate.
fn shared_mounts(process: &Process) -> io::Result<BTreeSet<u64>> {
    let table = File::open(format!("/proc/{}/mountinfo", process.pid))?;
    let mut table = BufReader::new(table.take(MOST_MOUNTS));
    let (mut found, mut line) = (BTreeSet::new(), Vec::new());
    while table.read_until(b'\n', &mut line)? > 0 {
        found.extend(shared_mount(&line));
        line.clear();
    }
    Ok(found)
}

/// Returns the number of the mount in a line of a mountinfo, if it is a shared one.
pub(crate) fn shared_mount(line: &[u8]) -> Option<u64> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    // After root, mount point and options stand the optional fields, up to a hyphen.
    let mut optional = words.skip(5).take_while(|word| *word != b"-");
    optional.any(|word| word.starts_with(b"shared:")).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The kernel writes a space in a name as an escape, so that no name is a field.
        #[test]
        fn any_line_is_shared_by_its_own_fields(
            line in prop::collection::vec(any::<u8>(), 0..80),
            name in "[^ \n]{1,20}",
        ) {
            let _ = shared_mount(&line);
            let private = format!("36 35 98:0 /{name} /{name} rw master:1 - {name} {name} {name}");
            prop_assert_eq!(shared_mount(private.as_bytes()), None);
        }
    }

    fn namespaces(of: &[(&'static str, &[&str])]) -> Namespaces {
        let names = |names: &&[&str]| names.iter().map(|one| (*one).to_owned()).collect();
        of.iter().map(|(kind, all)| (*kind, names(all))).collect()
    }

    #[test]
    fn shared_namespace_is_difference_only_with_node() {
        let node = namespaces(&[("net", &["1"]), ("mnt", &["2"])]);
        let own = namespaces(&[("net", &["7"]), ("mnt", &["2"])]);
        assert_eq!(differences(&own, &node, Some(&own)), [""; 0]);
        assert_eq!(differences(&node, &node, None), ["the node's net namespace"]);
        let moved = namespaces(&[("net", &["7"]), ("mnt", &["3"])]);
        let another = "another mnt namespace than the supervisor's";
        assert_eq!(differences(&moved, &node, Some(&own)), [another]);
        let split = namespaces(&[("net", &["7", "1"])]);
        let found = differences(&split, &node, None);
        assert_eq!(found, ["threads in 2 net namespaces", "the node's net namespace"]);
    }

    #[test]
    fn shared_mounts_are_read_from_optional_fields() {
        let line = |optional: &str| format!("36 35 98:0 /a /b rw{optional} - ext4 /dev/x rw");
        assert_eq!(shared_mount(line(" shared:1").as_bytes()), Some(36));
        assert_eq!(shared_mount(line(" master:2 shared:7").as_bytes()), Some(36));
        assert_eq!(shared_mount(line(" master:2").as_bytes()), None);
        assert_eq!(shared_mount(line("").as_bytes()), None);
        // A name with this word in it stands elsewhere.
        assert_eq!(shared_mount(b"36 35 98:0 /shared:1 /b rw - ext4 shared:1 rw"), None);
        assert_eq!(shared_mount(b"\xff"), None);
    }
}
