//! The directory through which the processes of one launcher find each other.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use aws_ebs_csi_driver::route::Backend;
use ebs_csi_policy::profile::{NODE_AGENT, ROUTER};
use ebs_csi_proto::Endpoint;
use rustix::fs::{CWD, Mode, OFlags, Stat, fchmod, fchown, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::{Gid, geteuid};
use rustix::thread::set_thread_groups;

/// The groups through which the router and the node-agent may use the sockets.
const GROUPS: [u32; 2] = [ROUTER.identity.gid, NODE_AGENT.identity.gid];
/// Where a directory is made without `--runtime-dir`, in this order.
const BASES: [&str; 2] = ["/run", "/tmp"];
/// Write permission of group and others, and the sticky bit: inode(7).
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

#[derive(Debug)]
pub(crate) struct RuntimeDirectory {
    path: PathBuf,
}

/// Why a directory cannot be the runtime directory.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The kernel's answer about this path.
    Kernel(PathBuf, io::Error),
    /// Another user can put sockets or links there.
    Foreign(PathBuf, &'static str),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(path, error) => write!(f, "runtime directory {}: {error}", path.display()),
            Self::Foreign(path, why) => write!(
                f,
                "runtime directory {}: {why}; give --runtime-dir a path that does not exist, in a directory of this user's own",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Unusable {}

impl RuntimeDirectory {
    /// Uses `path`, which is made if it does not exist, or makes a new directory under `/run`
    /// (`/tmp` when `/run` cannot be written).
    ///
    /// When root calls it, sockets made in the directory later belong to the group of the process
    /// that may use them.
    ///
    /// # Errors
    /// [`Unusable`]: a link or a directory in which another user can make entries stands at the
    /// path, or above it; or the error of mkdir(2), open(2) or chown(2).
    pub(crate) fn create(path: Option<PathBuf>) -> Result<Self, Unusable> {
        let (path, directory) = match path {
            Some(path) => {
                let directory = made_or_own(&path)?;
                (path, directory)
            }
            None => made_anew(&BASES.map(Path::new))?,
        };
        let made = Self { path };
        let sockets = entry_of(&directory, &made.sockets())?;
        let helper = entry_of(&directory, &made.helper_directory())?;
        if geteuid().is_root() {
            let kernel = |error: Errno| Unusable::Kernel(made.path.clone(), error.into());
            // Membership in the group makes CAP_CHOWN unnecessary for the change of group.
            set_thread_groups(&GROUPS.map(Gid::from_raw)).map_err(kernel)?;
            restrict_to_group(&sockets, ROUTER.identity.gid).map_err(kernel)?;
            restrict_to_group(&helper, NODE_AGENT.identity.gid).map_err(kernel)?;
            set_thread_groups(&[]).map_err(kernel)?;
        }
        Ok(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory in which controller and node-agent serve in mode `all`.
    fn sockets(&self) -> PathBuf {
        self.path.join("csi")
    }

    /// Returns the endpoint of a process behind the router.
    pub(crate) fn endpoint(&self, backend: Backend) -> Endpoint {
        Endpoint::Unix(self.sockets().join(backend.socket()))
    }

    fn helper_directory(&self) -> PathBuf {
        self.path.join("helper")
    }

    /// Returns the endpoint of the mount-helper.
    pub(crate) fn helper(&self) -> Endpoint {
        Endpoint::Unix(self.helper_directory().join("helper.sock"))
    }
}

/// Makes a directory whose name nobody can have taken, in the first of `bases` that permits it.
fn made_anew(bases: &[&Path]) -> Result<(PathBuf, OwnedFd), Unusable> {
    let mut failed = Unusable::Kernel(PathBuf::new(), Errno::NOENT.into());
    for base in bases {
        // Each RandomState has another key.
        let name = format!("aws-ebs-csi-driver.{:016x}", RandomState::new().hash_one(0));
        let path = base.join(name);
        match mkdirat(CWD, &path, Mode::from_raw_mode(0o755)) {
            Ok(()) => return Ok((path.clone(), opened(CWD, &path, &path)?)),
            Err(error) => failed = Unusable::Kernel(path, error.into()),
        }
    }
    Err(failed)
}

/// Makes the directory that a flag names, or takes one that is this user's already.
fn made_or_own(path: &Path) -> Result<OwnedFd, Unusable> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = openat(CWD, parent, flags, Mode::empty());
    let held = held.and_then(|held| Ok((fstat(&held)?, held)));
    let (found, held) = held.map_err(|e| Unusable::Kernel(parent.to_owned(), e.into()))?;
    // Whoever may rename the directory's entries may replace the directory at any time.
    if !is_own(&found) && found.st_uid != 0 {
        return Err(Unusable::Foreign(parent.to_owned(), "it belongs to another user"));
    }
    if found.st_mode & OTHERS_WRITE != 0 && found.st_mode & STICKY == 0 {
        return Err(Unusable::Foreign(parent.to_owned(), "others may write to it"));
    }
    entry_of(&held, path)
}

/// Makes the last component of `path` in `parent`, or takes it if it is this user's directory.
fn entry_of(parent: &OwnedFd, path: &Path) -> Result<OwnedFd, Unusable> {
    let Some(name) = path.file_name() else {
        return Err(Unusable::Foreign(path.to_owned(), "it has no name of its own"));
    };
    match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Err(error) if error != Errno::EXIST => Err(Unusable::Kernel(path.to_owned(), error.into())),
        _ => opened(parent, Path::new(name), path),
    }
}

/// Opens a directory, but follows no link. Fails unless it is this user's, and only this user can
/// make entries in it. `path` is what a failure names.
fn opened(parent: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, Unusable> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(parent, name, flags, Mode::empty());
    let opened = opened.and_then(|opened| Ok((fstat(&opened)?, opened)));
    let foreign = |why| Err(Unusable::Foreign(path.to_owned(), why));
    match opened {
        // open(2): a link is no directory, either.
        Err(Errno::NOTDIR | Errno::LOOP) => foreign("it is a link or no directory"),
        Err(error) => Err(Unusable::Kernel(path.to_owned(), error.into())),
        Ok((found, _)) if !is_own(&found) => foreign("it belongs to another user"),
        Ok((found, _)) if found.st_mode & OTHERS_WRITE != 0 => foreign("others may write to it"),
        Ok((_, opened)) => Ok(opened),
    }
}

fn is_own(found: &Stat) -> bool {
    found.st_uid == geteuid().as_raw()
}

/// Makes new files in the directory inherit the group `gid`, and denies all other users access.
fn restrict_to_group(directory: &OwnedFd, gid: u32) -> Result<(), Errno> {
    fchown(directory, None, Some(Gid::from_raw(gid)))?;
    fchmod(directory, Mode::from_raw_mode(0o2750))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    /// What stands at the path of a case, in a fresh directory.
    type Prepare = fn(&Path);

    fn make(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn give_away(path: &Path) {
        chown(path, Some(65534), Some(65534)).unwrap();
    }

    /// Each case may have `DIRECTORY/at`, or an entry in it, and `DIRECTORY/victim`, which must
    /// stay as it is.
    const CASES: &[(&str, Prepare, Option<&str>)] = &[
        ("nothing", |_| (), None),
        ("own directory", |at| make(at, 0o755), None),
        ("own directory of group", |at| make(at, 0o2750), None),
        (
            "own directory with entries of before",
            |at| {
                make(at, 0o755);
                make(&at.join("csi"), 0o2750);
                make(&at.join("helper"), 0o2750);
            },
            None,
        ),
        (
            "own directory in sticky one",
            |at| {
                fs::set_permissions(at.parent().unwrap(), Permissions::from_mode(0o1777)).unwrap();
            },
            None,
        ),
        (
            "parent that others write",
            |at| {
                fs::set_permissions(at.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
            },
            Some("others may write"),
        ),
        ("parent of another user", |at| give_away(at.parent().unwrap()), Some("another user")),
        ("directory that others write", |at| make(at, 0o777), Some("others may write")),
        ("directory that the group writes", |at| make(at, 0o775), Some("others may write")),
        (
            "directory of another user",
            |at| {
                make(at, 0o755);
                give_away(at);
            },
            Some("another user"),
        ),
        ("link", |at| symlink("victim", at).unwrap(), Some("link")),
        ("link to nothing", |at| symlink("none", at).unwrap(), Some("link")),
        ("file", |at| fs::write(at, "").unwrap(), Some("no directory")),
        (
            "sockets that are a link",
            |at| {
                make(at, 0o755);
                symlink("../victim", at.join("csi")).unwrap();
            },
            Some("link"),
        ),
        (
            "helper's directory that is a link",
            |at| {
                make(at, 0o755);
                symlink("../victim", at.join("helper")).unwrap();
            },
            Some("link"),
        ),
        (
            "sockets of another user",
            |at| {
                make(at, 0o755);
                make(&at.join("csi"), 0o755);
                give_away(&at.join("csi"));
            },
            Some("another user"),
        ),
    ];

    #[test]
    fn given_path_must_be_own_and_no_link() {
        if !geteuid().is_root() {
            println!("skipped: only root gives a directory to another user");
            return;
        }
        for (case, prepare, refused) in CASES {
            let directory = tempfile::tempdir().unwrap();
            let victim = directory.path().join("victim");
            make(&victim, 0o700);
            let at = directory.path().join("at");
            prepare(&at);
            let made = RuntimeDirectory::create(Some(at.clone()));
            match (made, refused) {
                (Ok(made), None) => {
                    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
                    assert_eq!(mode(made.sockets()), 0o2750, "{case}");
                    assert_eq!(mode(made.helper_directory()), 0o2750, "{case}");
                }
                (Err(error), Some(says)) => {
                    assert!(error.to_string().contains(says), "{case}: {error}");
                }
                (made, _) => panic!("{case}: {made:?}"),
            }
            let untouched = fs::metadata(&victim).unwrap();
            assert_eq!((untouched.mode() & 0o7777, untouched.gid()), (0o700, 0), "{case}");
        }
    }

    #[test]
    fn new_directory_takes_no_name_twice() {
        let base = tempfile::tempdir().unwrap();
        let none = base.path().join("none");
        let made = [0; 3].map(|_| made_anew(&[&none, base.path()]).unwrap().0);
        assert!(made.iter().all(|path| path.is_dir()), "{made:?}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), made.len());
        assert!(made_anew(&[&none]).is_err());
    }
}
