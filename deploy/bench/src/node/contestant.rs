//! A node service that is measured.

use std::path::PathBuf;

use ebs_csi_sandbox::binaries::Binaries;

use crate::report::figure::Role;

/// A driver's node service.
#[derive(Clone, Debug)]
pub(super) struct Contestant {
    /// Its name in the tables.
    pub(super) name: &'static str,
    /// Whose it is.
    pub(super) role: Role,
    pub(super) binaries: Binaries,
    /// Program and leading arguments of one that is not this driver's.
    pub(super) program: Option<(PathBuf, Vec<String>)>,
}

impl Contestant {
    /// This driver's node-agent and mount-helper.
    pub(super) fn ours(binaries: &Binaries) -> Self {
        Self {
            name: "driver",
            role: Role::Ours,
            binaries: binaries.clone(),
            program: None,
        }
    }

    /// Another driver's, in one process that may do everything.
    pub(super) fn peer(binaries: &Binaries, path: PathBuf) -> Self {
        Self {
            name: "other driver",
            role: Role::Peer,
            binaries: binaries.clone(),
            program: Some((path, vec!["node".to_owned()])),
        }
    }
}
