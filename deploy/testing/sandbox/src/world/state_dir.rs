//! A world's state directory, and the records from which a later process finds the world again.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::process_table::Identity;

const PREFIX: &str = "ebs-csi-sandbox.";

const OWNER: &str = "owner.json";
const RUN: &str = "run";

/// Makes a new state directory under `TMPDIR`, `/tmp`, `/var/tmp` or `/run`: the first whose file
/// system allows device nodes.
pub(crate) fn make() -> io::Result<PathBuf> {
    let mut tried = String::new();
    for base in bases() {
        let usable =
            statvfs(&base).is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::NODEV));
        // A socket's path has at most 107 bytes (unix(7)), and the longest path here adds 80 bytes
        // to the base.
        if usable && base.as_os_str().len() <= 27 {
            let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&base)?;
            let path = made.keep();
            // The driver's processes run as other users and must be able to traverse the directory.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
            fs::create_dir(path.join(RUN))?;
            own(&path)?;
            return Ok(path);
        }
        tried.push_str(&format!(" {}", base.display()));
    }
    Err(io::Error::other(format!(
        "no directory for device nodes: tried{tried}; each is missing, mounted nodev, or its path is too long; set TMPDIR"
    )))
}

fn bases() -> Vec<PathBuf> {
    let mut bases: Vec<PathBuf> =
        std::env::var_os("TMPDIR").map(PathBuf::from).into_iter().collect();
    bases.extend(["/tmp", "/var/tmp", "/run"].map(PathBuf::from));
    bases
}

fn own(state_dir: &Path) -> io::Result<()> {
    let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    let owner =
        Identity::of(pid).ok_or_else(|| io::Error::other("/proc does not show this process"))?;
    fs::write(state_dir.join(OWNER), serde_json::to_vec(&owner)?)
}

/// Returns whether the process that made `state_dir` still runs.
fn owned(state_dir: &Path) -> bool {
    read(&state_dir.join(OWNER)).is_some_and(Identity::alive)
}

fn read(path: &Path) -> Option<Identity> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Records that `identity` is process `name` of this world.
pub(crate) fn record(state_dir: &Path, name: &str, identity: Identity) -> io::Result<()> {
    fs::write(state_dir.join(RUN).join(name), serde_json::to_vec(&identity)?)
}

/// Returns every recorded process, dead or alive.
pub(crate) fn recorded(state_dir: &Path) -> Vec<Identity> {
    let Ok(entries) = fs::read_dir(state_dir.join(RUN)) else {
        return Vec::new();
    };
    entries.flatten().filter_map(|entry| read(&entry.path())).collect()
}

/// Returns the state directories under `TMPDIR`, `/tmp`, `/var/tmp` and `/run` whose world is dead.
pub fn abandoned_state_dirs() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for base in bases() {
        let Ok(entries) = fs::read_dir(base) else {
            continue;
        };
        for entry in entries.flatten() {
            let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if ours
                && entry.path().join(RUN).is_dir()
                && !owned(&entry.path())
                && !found.contains(&entry.path())
            {
                found.push(entry.path());
            }
        }
    }
    found
}
