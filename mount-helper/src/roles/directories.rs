//! The process that makes and removes targets. It runs as uid 0, because targets lie beneath
//! directories of root, without any capability, and can do nothing else. Each request names one
//! held parent, one name and one act.
use crate::channel;
use crate::mount::directory_requests::{Act, MADE_PARENT_MODE};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Mode, StatxAttributes, StatxFlags, mkdirat, mknodat, statx, unlinkat,
};
use rustix::io::Errno;

/// Serves requests until the other end is closed. The process must be confined already.
pub(crate) fn serve(socket: &OwnedFd) {
    while let Ok((request, descriptors)) = channel::receive(socket) {
        if request.is_empty() {
            return;
        }
        let errno = match act(&request, &descriptors) {
            Ok(()) => 0,
            Err(errno) => errno.raw_os_error(),
        };
        if channel::send(socket, &errno.to_le_bytes(), &[]).is_err() {
            return;
        }
    }
}

fn act(request: &[u8], descriptors: &[OwnedFd]) -> Result<(), Errno> {
    let ([number, name @ ..], [parent]) = (request, descriptors) else {
        return Err(Errno::INVAL);
    };
    let act = Act::from_number(*number).ok_or(Errno::INVAL)?;
    let name = component(name).ok_or(Errno::INVAL)?;
    match act {
        Act::MakeDirectory => mkdirat(parent, name, Mode::from_raw_mode(0o755)),
        Act::MakeParent => mkdirat(parent, name, Mode::from_raw_mode(MADE_PARENT_MODE)),
        // mknod, unlike open, needs no right to read or write the file that it makes.
        Act::MakeFile => {
            mknodat(parent, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
        }
        Act::RemoveDirectory => unlinkat(parent, name, AtFlags::REMOVEDIR),
        Act::RemoveFile => {
            looks_made_here(parent, name)?;
            unlinkat(parent, name, AtFlags::empty())
        }
    }
}

/// Checks that `name` looks like the result of [`Act::MakeFile`]: a regular file of root, empty,
/// with one link, and with nothing mounted on it. The process does not trust the broker to have
/// checked this. Between this check and the unlink, the broker can neither rename nor write
/// anything, and the kernel refuses to remove a file on which the broker mounts something.
fn looks_made_here(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    let facts = statx(
        parent,
        name,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        StatxFlags::BASIC_STATS,
    )?;
    let kind = FileType::from_raw_mode(facts.stx_mode.into());
    let mounted = facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    if kind == FileType::RegularFile
        && facts.stx_size == 0
        && facts.stx_nlink == 1
        && facts.stx_uid == 0
        && !mounted
    {
        Ok(())
    } else {
        Err(Errno::NOTEMPTY)
    }
}

/// Returns `name` when it is exactly one path component. The broker is not trusted to have checked
/// this.
fn component(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let plain =
        !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0']);
    plain.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::directory_requests::Directories;
    use rustix::fs::OFlags;

    #[test]
    fn only_a_single_plain_component_is_a_name() {
        assert_eq!(component(b"mount"), Some("mount"));
        for bad in [&b""[..], b".", b"..", b"a/b", b"/a", b"a\0", b"\xff", &[b'x'; 256]] {
            assert_eq!(component(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn entries_are_created_and_removed_only_below_parent() {
        let directory = tempfile::tempdir().expect("tempdir");
        let parent = rustix::fs::open(directory.path(), OFlags::PATH, Mode::empty()).expect("open");
        let (ours, theirs) = channel::pair().expect("pair");
        let server = std::thread::spawn(move || serve(&theirs));
        let directories = Directories::new(ours);
        directories.make(Act::MakeDirectory, &parent, "d").expect("mkdir");
        directories.make(Act::MakeFile, &parent, "f").expect("mknod");
        directories.make(Act::MakeDirectory, &parent, "d").expect("again");
        assert!(directory.path().join("d").is_dir());
        assert!(directory.path().join("f").is_file());
        std::fs::write(directory.path().join("d/x"), "x").expect("write");
        assert!(directories.remove(Act::RemoveDirectory, &parent, "d").is_err());
        std::fs::remove_file(directory.path().join("d/x")).expect("remove");
        assert_eq!(directories.remove(Act::RemoveDirectory, &parent, "d"), Ok(true));
        assert_eq!(directories.remove(Act::RemoveDirectory, &parent, "d"), Ok(false));
        assert_eq!(directories.remove(Act::RemoveFile, &parent, "f"), Ok(true));
        assert!(directories.make(Act::MakeDirectory, &parent, "../x").is_err());
        drop(directories);
        server.join().expect("server");
    }
}
