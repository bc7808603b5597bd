//! Reads `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The directory of the file system that is mounted.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    /// The mounted source: a device for a disk's file system.
    pub(crate) source: OsString,
}

/// Returns the mounts that process `pid` (or `self`, `thread-self`) sees, oldest first.
pub(crate) fn of(pid: &str) -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(format!("/proc/{pid}/mountinfo"))?))
}

/// Returns the mounts at or beneath `directory`, in the order in which they must be unmounted.
pub(crate) fn beneath(directory: &Path) -> io::Result<Vec<Mount>> {
    let mut mounts = of("self")?;
    mounts.retain(|mount| mount.point.starts_with(directory));
    mounts.reverse();
    Ok(mounts)
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let point = fields.next()?;
    // A lone hyphen ends the optional fields (propagation).
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = fields.next()?;
    let source = fields.next()?;
    Some(Mount {
        root: PathBuf::from(unescape(root)),
        point: PathBuf::from(unescape(point)),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: unescape(source),
    })
}

/// Decodes the three octal digits that stand for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_parser_accepts_optional_fields_and_decodes_octal() {
        let table = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/sda1 rw,errors=continue\n\
            23 29 0:22 / /proc rw,relatime - proc proc rw\nshort\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(
            mounts[0],
            Mount {
                root: "/mnt1".into(),
                point: "/mnt 2".into(),
                kind: "ext3".into(),
                source: "/dev/sda1".into()
            }
        );
        assert_eq!(mounts[1].point, Path::new("/proc"));
    }

    #[test]
    fn the_running_test_sees_its_own_proc() {
        assert!(of("self").unwrap().iter().any(|mount| mount.kind == "proc"));
    }
}
