//! The directory through which the processes of one launcher find each other.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use ebs_csi_policy::profile::{NODE_AGENT, ROUTER};
use ebs_csi_proto::Endpoint;
use rustix::process::{Gid, geteuid};
use rustix::thread::set_thread_groups;

use crate::route::Backend;

/// The groups through which the router and the node-agent may use the sockets.
const GROUPS: [u32; 2] = [ROUTER.identity.gid, NODE_AGENT.identity.gid];

/// The runtime directory.
#[derive(Clone, Debug)]
pub struct RuntimeDirectory {
    path: PathBuf,
}

impl RuntimeDirectory {
    /// Uses `path`, or makes a new directory under `/run` (`/tmp` when `/run` cannot be written).
    ///
    /// When root calls it, sockets made in the directory later belong to the group of the process
    /// that may use them.
    ///
    /// # Errors
    /// Returns the errors of mkdir(2) and chown(2).
    pub fn create(path: Option<PathBuf>) -> io::Result<Self> {
        let path = match path {
            Some(path) => path,
            None => {
                let name = format!("aws-ebs-csi-driver.{}", std::process::id());
                let run = Path::new("/run").join(&name);
                if make_directory(&run).is_ok() { run } else { Path::new("/tmp").join(name) }
            }
        };
        let directory = Self { path };
        make_directory(&directory.path)?;
        make_directory(&directory.sockets())?;
        make_directory(&directory.helper_directory())?;
        if geteuid().is_root() {
            // Membership in the group makes CAP_CHOWN unnecessary for the change of group.
            set_thread_groups(&GROUPS.map(Gid::from_raw))?;
            restrict_to_group(&directory.sockets(), ROUTER.identity.gid)?;
            restrict_to_group(&directory.helper_directory(), NODE_AGENT.identity.gid)?;
            set_thread_groups(&[])?;
        }
        Ok(directory)
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory in which controller and node-agent serve in mode `all`.
    pub fn sockets(&self) -> PathBuf {
        self.path.join("csi")
    }

    /// Returns the endpoint of a process behind the router.
    pub fn endpoint(&self, backend: Backend) -> Endpoint {
        Endpoint::Unix(self.sockets().join(backend.socket()))
    }

    fn helper_directory(&self) -> PathBuf {
        self.path.join("helper")
    }

    /// Returns the endpoint of the mount-helper.
    pub fn helper(&self) -> Endpoint {
        Endpoint::Unix(self.helper_directory().join("helper.sock"))
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Makes new files in `path` inherit the group `gid`, and denies all other users access to `path`.
fn restrict_to_group(path: &Path, gid: u32) -> io::Result<()> {
    chown(path, None, Some(gid))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o2750))
}
