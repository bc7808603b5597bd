//! The mount table of this mount namespace, read from `/proc/self/mountinfo`
//! (proc_pid_mountinfo(5)).
use crate::disk::device_number;
use ebs_csi_policy::facts::DeviceNumber;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The kernel's id of the mount, as statx(2) reports it for a path (`STATX_MNT_ID`).
    pub(crate) id: u64,
    pub(crate) device: DeviceNumber,
    /// Path within the file system that is the root of this mount.
    pub(crate) root: String,
    /// Where it is mounted, as this process sees it.
    pub(crate) path: String,
    /// Whether mounts beneath this one appear in other mount namespaces, too (mount_namespaces(7),
    /// "shared subtrees").
    pub(crate) shared: bool,
    pub(crate) read_only: bool,
    pub(crate) superblock_read_only: bool,
    /// Whether the kernel accepts no more writes to the file system after an error.
    pub(crate) turned_read_only: bool,
    /// Whether the kernel has shut the file system down after an error, so that it accepts neither
    /// reads nor writes.
    pub(crate) shut_down: bool,
    pub(crate) fs_type: String,
    /// Source, as the mount call named it.
    pub(crate) source: String,
}

impl Mount {
    /// Returns the last component of `root`. For a bound device node this is the node's name in
    /// `/dev`. When the kernel has removed the node since, because the disk left, `//deleted`
    /// stands behind the path (Linux, fs/d_path.c).
    pub(crate) fn root_name(&self) -> &str {
        let root = self.root.strip_suffix("//deleted").unwrap_or(&self.root);
        root.rsplit('/').next().unwrap_or_default()
    }
}

/// The held directory `/proc/self` of the process that reads its own table.
#[derive(Debug)]
pub(crate) struct MountTable {
    directory: OwnedFd,
}

/// Largest table that is read, in bytes; a node with a thousand pods has a table of about 1 MiB.
const LONGEST: usize = 64 << 20;

impl MountTable {
    /// Holds `/proc/self` of the calling process. A process that forks must open its own.
    pub(crate) fn open() -> Result<Self, Errno> {
        Ok(Self {
            directory: rustix::fs::open(
                "/proc/self/",
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?,
        })
    }

    /// Reads every mount, in the kernel's order. A line that cannot be parsed is an error: an
    /// unknown fact must not look like an absent one.
    pub(crate) fn read(&self) -> Result<Vec<Mount>, Errno> {
        let file = crate::path_resolution::open(&self.directory, "mountinfo", OFlags::RDONLY)?;
        let mut text = Vec::new();
        loop {
            text.reserve(16 << 10);
            match rustix::io::read(&file, spare_capacity(&mut text)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
            if text.len() > LONGEST {
                return Err(Errno::FBIG);
            }
        }
        parse(&text).ok_or(Errno::ILSEQ)
    }

    /// Reads every mount of a device, wherever it is.
    pub(crate) fn read_of(&self, device: DeviceNumber) -> Result<Vec<Mount>, Errno> {
        let mut mounts = self.read()?;
        mounts.retain(|mount| mount.device == device);
        Ok(mounts)
    }
}

/// Returns the id of the mount that the held path lies on.
pub(crate) fn mount_of(path: impl AsFd) -> Result<u64, Errno> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    Ok(statx(path, "", flags, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Returns the id of the mount whose root is the held path; None when the path is not the root of a
/// mount (`STATX_ATTR_MOUNT_ROOT`).
pub(crate) fn mount_id_at(path: impl AsFd) -> Result<Option<u64>, Errno> {
    use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
    let facts = statx(
        path,
        "",
        AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT,
        StatxFlags::BASIC_STATS | StatxFlags::MNT_ID,
    )?;
    if !facts.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT).then_some(facts.stx_mnt_id))
}

pub(crate) fn parse(text: &[u8]) -> Option<Vec<Mount>> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    // Names are only displayed or compared with checked names, and a checked name never contains a
    // replacement character.
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let id = words.next()?.parse().ok()?;
    let _parent = words.next()?;
    let device = device_number::parse(words.next()?)?;
    let root = unescape(words.next()?)?;
    let path = unescape(words.next()?)?;
    let options = words.next()?;
    // Optional fields (propagation) end at a lone hyphen.
    let mut shared = false;
    while let word = words.next()?
        && word != "-"
    {
        shared |= word.starts_with("shared:");
    }
    let fs_type = words.next()?.to_owned();
    let source = unescape(words.next()?)?;
    let superblock_options = words.next()?;
    Some(Mount {
        id,
        device,
        root,
        path,
        shared,
        read_only: has(options, "ro"),
        superblock_read_only: has(superblock_options, "ro"),
        // ext4 of kernel 6.15 and newer has an option for this state; earlier kernels make the
        // superblock read-only beneath writable mounts.
        turned_read_only: has(superblock_options, "emergency_ro")
            || (has(superblock_options, "ro") && !has(options, "ro")),
        shut_down: has(superblock_options, "shutdown"),
        fs_type,
        source,
    })
}

fn has(options: &str, wanted: &str) -> bool {
    options.split(',').any(|option| option == wanted)
}

/// Undoes the kernel's escapes: the kernel writes space, tab, newline, backslash and hash as three
/// octal digits after a backslash.
fn unescape(word: &str) -> Option<String> {
    if !word.contains('\\') {
        return Some(word.to_owned());
    }
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'\\' {
            let digits = tail.get(..3)?;
            let mut value = 0_u32;
            for digit in digits {
                value = value * 8 + char::from(*digit).to_digit(8)?;
            }
            bytes.push(u8::try_from(value).ok()?);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_line_is_parsed_and_unescaped() {
        let line = b"36 35 98:5 /sub /mnt\\040two rw,noatime master:1 shared:7 - ext4 /dev/ro\\134ot ro,errors=continue";
        let mount = parse_line(line).expect("a mount");
        assert_eq!(mount.id, 36);
        assert_eq!(Some(mount.device), device_number::parse("98:5"));
        assert_eq!(mount.root, "/sub");
        assert_eq!(mount.root_name(), "sub");
        assert_eq!(mount.path, "/mnt two");
        assert!(!mount.read_only);
        assert!(mount.shared);
        assert!(mount.superblock_read_only);
        assert_eq!(mount.fs_type, "ext4");
        assert_eq!(mount.source, "/dev/ro\\ot");
    }

    #[test]
    fn deleted_suffix_is_stripped_from_root_name() {
        for (root, name) in [
            ("/nvme1n1", "nvme1n1"),
            ("/nvme1n1//deleted", "nvme1n1"),
            ("/deleted", "deleted"),
            ("/", ""),
        ] {
            let line = format!("1 2 0:5 {root} /x rw - devtmpfs none rw");
            let mount = parse_line(line.as_bytes()).expect("a mount");
            assert_eq!(mount.root_name(), name, "{root}");
        }
    }

    /// A superblock with emergency_ro, or with ro below an rw mount, counts as turned read-only;
    /// the option shutdown counts as shut down.
    #[test]
    fn kernel_stopped_filesystem_differs_from_read_only_mount() {
        for (options, superblock, read_only, down) in [
            ("rw", "rw,errors=remount-ro", false, false),
            ("rw", "rw,errors=remount-ro,emergency_ro", true, false),
            ("rw,noatime", "ro,errors=remount-ro", true, false),
            ("ro", "ro", false, false),
            ("ro", "rw", false, false),
            ("rw", "rw,shutdown", false, true),
        ] {
            let line = format!("36 35 98:5 / / {options} - ext4 /dev/x {superblock}");
            let mount = parse_line(line.as_bytes()).expect("a mount");
            assert_eq!((mount.turned_read_only, mount.shut_down), (read_only, down), "{line}");
        }
    }

    #[test]
    fn only_a_peer_group_makes_a_mount_shared() {
        for (fields, shared) in [
            ("", false),
            ("shared:7 ", true),
            ("master:7 ", false),
            ("shared:8 master:7 ", true),
            ("master:7 propagate_from:1 ", false),
            ("unbindable ", false),
        ] {
            let line = format!("36 35 98:5 / / rw {fields}- ext4 /dev/x rw");
            let mount = parse_line(line.as_bytes()).expect("a mount");
            assert_eq!(mount.shared, shared, "{line}");
        }
    }

    #[test]
    fn invalid_mountinfo_line_rejects_whole_table() {
        for line in [
            "x 35 98:5 / / rw - ext4 /dev/x rw",
            "36 35 98 / / rw - ext4 /dev/x rw",
            "36 35 98:5 / / rw ext4 /dev/x rw",
            "36 35 98:5 / /a\\9 rw - ext4 /dev/x rw",
            "36 35 98:5 / / rw - ext4 /dev/x",
        ] {
            let text = format!("36 35 98:5 / / rw - ext4 /dev/x rw\n{line}\n");
            assert_eq!(parse(text.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn live_mount_table_contains_root() {
        let mounts = MountTable::open().expect("open").read().expect("read");
        assert!(mounts.iter().any(|mount| mount.path == "/"));
    }

    #[test]
    fn a_plain_directory_is_no_mount_root() {
        let directory = tempfile::tempdir().expect("tempdir");
        let held = rustix::fs::open(directory.path(), OFlags::PATH, Mode::empty()).expect("open");
        assert_eq!(mount_id_at(&held), Ok(None));
        let proc = rustix::fs::open("/proc", OFlags::PATH, Mode::empty()).expect("open");
        assert!(mount_id_at(&proc).expect("statx").is_some());
    }
}
