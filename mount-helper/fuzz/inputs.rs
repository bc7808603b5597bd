//! What the fuzz targets do with an input, and the replay of their inputs. A target returns whether
//! the input was accepted. `content` is in `tests/content/scattered.rs`.

use crate::disk::device_number;
use crate::mount::mount_table::{self, Mount};
use crate::path_resolution::{self, HeldPath};
use ebs_csi_policy::place::{self, PlaceClass, PlaceFor};
use ebs_csi_wire::KubeletPath;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

#[cfg(test)]
#[path = "../../proto/wire/fuzz/replay.rs"]
mod replay;

/// Reads the input as a mountinfo. What was read can be written as the kernel writes it, and is
/// then read as the same.
pub fn mountinfo(input: &[u8]) -> bool {
    let Some(mounts) = mount_table::parse(input) else { return false };
    let lines = input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    assert_eq!(mounts.len(), lines.count(), "each line is a mount");
    let texts = mounts.iter().flat_map(|one| [&one.root, &one.path, &one.fs_type, &one.source]);
    // A byte that is no UTF-8 becomes three.
    assert!(texts.map(String::len).sum::<usize>() <= 3 * input.len());
    assert!(mounts.iter().all(|mount| !mount.root_name().contains('/')));
    let again: String = mounts.iter().map(mountinfo_line).collect();
    assert_eq!(mount_table::parse(again.as_bytes()), Some(mounts), "{again}");
    true
}

fn mountinfo_line(mount: &Mount) -> String {
    let options = |read_only: bool| if read_only { "ro" } else { "rw" };
    let escaped = |text: &str| {
        let escape = |one: char| match one {
            ' ' | '\t' | '\n' | '\\' | '#' => format!("\\{:03o}", u32::from(one)),
            other => other.to_string(),
        };
        text.chars().map(escape).collect::<String>()
    };
    format!(
        "{} 1 {} {} {} {}{} - {} {} {}{}{}\n",
        mount.id,
        device_number::text(mount.device),
        escaped(&mount.root),
        escaped(&mount.path),
        options(mount.read_only),
        if mount.shared { " shared:1" } else { "" },
        mount.fs_type,
        escaped(&mount.source),
        options(mount.superblock_read_only),
        if mount.turned_read_only { ",emergency_ro" } else { "" },
        if mount.shut_down { ",shutdown" } else { "" },
    )
}

/// A kubelet root with places of volumes, and links that lead out of it.
#[derive(Debug)]
pub struct KubeletTree {
    held: OwnedFd,
    path: PathBuf,
}

impl KubeletTree {
    /// Makes the tree in an empty directory. Panics when that fails.
    pub fn new(directory: &Path) -> Self {
        let directory = fs::canonicalize(directory).expect("a directory");
        let (path, outside) = (directory.join("root"), directory.join("outside"));
        for place in [
            "plugins/kubernetes.io/csi/ebs.csi.aws.com/h/globalmount",
            "pods/u/volumes/kubernetes.io~csi/v",
        ] {
            fs::create_dir_all(path.join(place)).expect("mkdir");
        }
        fs::create_dir_all(outside.join("v")).expect("mkdir");
        for (target, name) in [
            (Path::new(".."), "up"),
            (Path::new("/"), "pods/slash"),
            (&*outside, "pods/u/volumes/kubernetes.io~csi/out"),
            (Path::new("../../outside"), "pods/out"),
            (Path::new("u"), "pods/in"),
            (Path::new("/proc/self/cwd"), "pods/u/magic"),
        ] {
            symlink(target, path.join(name)).expect("symlink");
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::open(&path, flags, Mode::empty()).expect("the root");
        Self { held, path }
    }

    /// Resolves the input beneath the root as it is, and as a request's path with the root `/k`.
    /// Accepts a path at which kubelet has volumes staged or published.
    pub fn kubelet_path(&self, input: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(input) else { return false };
        if let Ok(held) = path_resolution::hold(&self.held, text) {
            let found = real_path(&held);
            assert!(found.starts_with(&self.path), "{text:?} led to {}", found.display());
        }
        let Ok(path) = KubeletPath::parse(text) else { return false };
        assert_eq!(path.as_str(), text);
        let root = KubeletPath::parse("/k").expect("a path");
        let Some(relative) = path.strip_root(&root) else { return false };
        assert_eq!(format!("{root}/{relative}"), text);
        assert!(relative.components().all(|one| !matches!(one, "" | "." | "..")), "{text:?}");
        let (parent, name) = path_resolution::split(relative.as_str());
        assert!(!name.contains('/'));
        if let Ok(held) = path_resolution::hold(&self.held, relative.as_str()) {
            // No second spelling: neither a link nor dots were on the way.
            assert_eq!(real_path(&held), self.path.join(relative.as_str()));
            assert!(path_resolution::hold_directory(&self.held, parent).is_ok());
        }
        use PlaceFor::{PublishBlock, PublishFilesystem, Stage, Stats, Unstage};
        [Stage, Unstage, PublishFilesystem, PublishBlock, Stats].into_iter().any(|used| {
            let is_in = |class| place::allowed(class, &[used], relative);
            let is_beneath =
                ["plugins/", "pods/"].iter().any(|one| relative.as_str().starts_with(one));
            assert!(!is_in(PlaceClass::Any) || is_beneath, "{text:?} for {used:?}");
            assert!(!is_in(PlaceClass::Kubernetes) || is_in(PlaceClass::Any), "{text:?}");
            is_in(PlaceClass::Kubernetes)
        })
    }
}

fn real_path(held: &HeldPath) -> PathBuf {
    let link = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
    fs::read_link(link).expect("the path of a descriptor")
}

#[cfg(test)]
mod tests {
    use super::replay::replay;
    use super::*;

    #[test]
    fn mountinfo_corpus_is_accepted_as_its_names_say() {
        replay("mountinfo", 3, mountinfo);
    }

    #[test]
    fn kubelet_path_corpus_never_leaves_the_root() {
        let directory = tempfile::tempdir().expect("tempdir");
        let tree = KubeletTree::new(directory.path());
        replay("kubelet_path", 3, |input| tree.kubelet_path(input));
    }
}
