//! A path beneath the kubelet root, and what stands there.
use crate::disk::device_number::of_node;
use crate::lock;
use crate::mount::directory_requests::{Act, Directories, MADE_PARENT_MODE};
use crate::mount::mount_table::{Mount, MountTable, mount_id_at};
use crate::outcome::{At, Result, at_path};
use crate::path_resolution::{self, HeldPath};
use crate::sys;
use ebs_csi_policy::facts::{DeviceNumber, MountFacts, PathFacts, VolumeMount};
use ebs_csi_wire::{KubeletPath, Observation, Refusal, Step};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, FileType, OFlags, fstat};
use rustix::io::Errno;
use std::sync::Mutex;

#[derive(Debug)]
pub(crate) struct KubeletRoot {
    held: OwnedFd,
    path: KubeletPath,
    /// The same path with symbolic links resolved, as the mount table shows it in the paths of
    /// mounts beneath it.
    in_table: String,
    /// Locked while a target is made with its parents, and while made parents are removed.
    parents: Mutex<()>,
}

impl KubeletRoot {
    pub(crate) fn open(path: KubeletPath) -> Result<Self, Errno> {
        use rustix::fs::Mode;
        let held = rustix::fs::open(
            path.as_str(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let real = std::fs::canonicalize(path.as_str()).map_err(|e| sys::errno_of(&e))?;
        let in_table = real.to_str().ok_or(Errno::ILSEQ)?.to_owned();
        Ok(Self { held, path, in_table, parents: Mutex::default() })
    }

    pub(crate) fn path(&self) -> &KubeletPath {
        &self.path
    }

    pub(crate) fn held(&self) -> &OwnedFd {
        &self.held
    }

    pub(crate) fn hold(&self, relative: &str) -> Result<HeldPath> {
        at_path(path_resolution::hold(&self.held, relative))
    }

    /// Opens a relative path with O_PATH and refuses when something is mounted on it, so that a
    /// mount is never stacked on one that has appeared since the place was judged.
    pub(crate) fn hold_free(&self, relative: &str) -> Result<HeldPath> {
        let held = self.hold(relative)?;
        match mount_id_at(&held).at(Step::ResolvePath)? {
            None => Ok(held),
            Some(_) => Err(Refusal::MountedDifferently.into()),
        }
    }

    /// Returns the device number of the block device node at a relative path.
    pub(crate) fn bound_node(&self, relative: &str) -> Option<DeviceNumber> {
        of_node(&fstat(self.hold(relative).ok()?).ok()?)
    }

    /// Returns the names of at most 16 entries of a directory, for a log line; none of a directory
    /// that cannot be read.
    pub(crate) fn first_entries(&self, relative: &str) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = path_resolution::open(&self.held, relative, flags).and_then(Dir::new);
        let entries = opened.into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "." && name != "..").take(16).collect()
    }

    /// Opens the parent of a relative path with O_PATH, and returns it with the last component.
    pub(crate) fn hold_parent<'p>(&self, relative: &'p str) -> Result<(HeldPath, &'p str)> {
        let (parent, name) = path_resolution::split(relative);
        let held = at_path(path_resolution::hold_directory(&self.held, parent))?;
        Ok((held, name))
    }

    pub(crate) fn path_facts(&self, relative: &str, table: &MountTable) -> Result<PathFacts> {
        Ok(self.path_facts_and_mounts(relative, table)?.0)
    }

    /// Does the same as [`Self::path_facts`], and returns all mounts of the table when the path is
    /// a mount.
    pub(crate) fn path_facts_and_mounts(
        &self,
        relative: &str,
        table: &MountTable,
    ) -> Result<(PathFacts, Vec<Mount>)> {
        let held = match path_resolution::hold(&self.held, relative) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Ok((PathFacts::Missing, Vec::new())),
            Err(errno) => return at_path(Err(errno)),
        };
        let facts = match fstat(&held) {
            Ok(facts) => facts,
            // A file system that the kernel has shut down cannot be queried, but its mount still
            // exists and has to be unmounted.
            Err(errno @ (Errno::IO | Errno::STALE | Errno::NOTCONN | Errno::NODEV)) => {
                let from_table = self.facts_from_table(relative, table)?;
                let facts = from_table.map_or_else(|| Err(errno).at(Step::ResolvePath), Ok)?;
                return Ok((facts, Vec::new()));
            }
            Err(errno) => return Err(errno).at(Step::ResolvePath),
        };
        let kind = FileType::from_raw_mode(facts.st_mode);
        let Some(id) = mount_id_at(&held).at(Step::ResolvePath)? else {
            let facts = match kind {
                FileType::Directory => PathFacts::Directory,
                FileType::RegularFile => PathFacts::File,
                _ => PathFacts::Other,
            };
            return Ok((facts, Vec::new()));
        };
        let mounts = table.read().at(Step::ReadMountTable)?;
        // The mount was unmounted between the two reads; the caller's next look shows the result.
        let Some(mount) = mounts.iter().find(|mount| mount.id == id) else {
            return Err(Errno::AGAIN).at(Step::ReadMountTable);
        };
        let node = of_node(&facts);
        let block = node.is_some();
        let facts = PathFacts::Mounted(MountFacts {
            device: node.unwrap_or(mount.device),
            block,
            whole: block || mount.root == "/",
            // The file system that holds a device node does not decide about writes to the device.
            read_only: mount.read_only || (!block && mount.superblock_read_only),
        });
        Ok((facts, mounts))
    }

    /// Returns the mount that the table has at a relative path, for a path that cannot be queried
    /// itself. The last mount covers the others.
    fn facts_from_table(&self, relative: &str, table: &MountTable) -> Result<Option<PathFacts>> {
        let mounts = table.read().at(Step::ReadMountTable)?;
        let top = mounts.iter().rfind(|mount| self.relative(mount).as_deref() == Some(relative));
        Ok(top.map(|mount| {
            PathFacts::Mounted(MountFacts {
                device: mount.device,
                block: false,
                whole: mount.root == "/",
                read_only: mount.read_only || mount.superblock_read_only,
            })
        }))
    }

    /// Returns those of `mounts` that `wanted` accepts, in the form that the judge takes.
    pub(crate) fn volume_mounts(
        &self,
        mounts: &[Mount],
        wanted: impl Fn(&Mount) -> bool,
    ) -> Vec<VolumeMount> {
        mounts
            .iter()
            .filter(|mount| wanted(mount))
            .map(|mount| VolumeMount {
                path: self.relative(mount),
                read_only: mount.read_only || mount.superblock_read_only,
            })
            .collect()
    }

    /// Returns a place other than `relative` where the file system of a device is mounted, for a
    /// refusal that names it. None when there is no such place, or none with a name that can be
    /// reported.
    pub(crate) fn other_mount(
        &self,
        device: DeviceNumber,
        relative: &str,
        table: &MountTable,
    ) -> Option<Observation> {
        let mounts = table.read_of(device).ok()?;
        mounts
            .iter()
            .filter(|mount| self.relative(mount).as_deref() != Some(relative))
            .find_map(|mount| self.place_of(mount))
            .map(Observation::MountedAt)
    }

    /// Returns where a mount stands: beneath this root by the name that a request would use,
    /// elsewhere by the name in the table.
    pub(crate) fn place_of(&self, mount: &Mount) -> Option<KubeletPath> {
        match self.relative(mount) {
            Some(relative) => self.absolute_path(&relative),
            None => KubeletPath::parse(&mount.path).ok(),
        }
    }

    /// Returns the name that requests and answers use for a relative path; None when it has no form
    /// that a request may have.
    pub(crate) fn absolute_path(&self, relative: &str) -> Option<KubeletPath> {
        KubeletPath::parse(&format!("{}/{relative}", self.path)).ok()
    }

    /// Returns the path of a mount relative to this root; None when the mount stands elsewhere.
    pub(crate) fn relative(&self, mount: &Mount) -> Option<String> {
        mount.path.strip_prefix(self.in_table.as_str())?.strip_prefix('/').map(str::to_owned)
    }

    /// Makes a directory or an empty file, with its missing parents.
    pub(crate) fn make(&self, act: Act, relative: &str, directories: &Directories) -> Result<()> {
        let _parents_lock = lock(&self.parents);
        let (parents, name) = path_resolution::split(relative);
        let mut parent = at_path(path_resolution::hold_directory(&self.held, "."))?;
        for name in parents.split('/').filter(|name| *name != ".") {
            parent = match path_resolution::hold_directory(&parent, name) {
                Err(Errno::NOENT) => {
                    directories.make(Act::MakeParent, &parent, name)?;
                    path_resolution::hold_directory(&parent, name).at(Step::MakeTarget)?
                }
                other => at_path(other)?,
            };
        }
        match path_resolution::hold(&parent, name) {
            Err(Errno::NOENT) => directories.make(act, &parent, name),
            other => at_path(other).map(drop),
        }
    }

    /// Removes those of a path's parents that were made on the way to a target and are empty now,
    /// from the last one upwards.
    pub(crate) fn remove_made_parents(&self, relative: &str, directories: &Directories) {
        let _parents_lock = lock(&self.parents);
        let mut path = path_resolution::split(relative).0;
        while path != "." {
            let made_here = match path_resolution::hold_directory(&self.held, path) {
                Ok(held) => fstat(&held).is_ok_and(|facts| {
                    facts.st_uid == 0 && facts.st_mode & 0o7777 == MADE_PARENT_MODE
                }),
                // An interrupted request may have removed a parent already.
                Err(errno) => errno == Errno::NOENT,
            };
            // A parent that is in use again stays, and so do those above it.
            if !made_here || self.remove(Act::RemoveDirectory, path, directories).is_err() {
                return;
            }
            path = path_resolution::split(path).0;
        }
    }

    /// Removes an empty directory or a file; returns false when there was none.
    pub(crate) fn remove(
        &self,
        act: Act,
        relative: &str,
        directories: &Directories,
    ) -> Result<bool> {
        let (parent, name) = path_resolution::split(relative);
        match path_resolution::hold_directory(&self.held, parent) {
            Ok(held) => directories.remove(act, held.as_fd(), name),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => at_path(Err(errno)),
        }
    }
}
