//! A node service to measure.

use std::path::PathBuf;

use ebs_csi_sandbox::binaries::Binaries;

use crate::report::figure::Role;

/// A driver's node service.
#[derive(Clone, Debug)]
pub(super) struct Contestant {
    /// The name in the tables.
    pub(super) name: &'static str,
    /// The role of its rows.
    pub(super) role: Role,
    pub(super) binaries: Binaries,
    /// Program and leading arguments of another driver; `None` for this driver.
    pub(super) program: Option<(PathBuf, Vec<String>)>,
}

impl Contestant {
    /// Returns this driver's node-agent and mount-helper.
    pub(super) fn ours(binaries: &Binaries) -> Self {
        Self { name: "driver", role: Role::Ours, binaries: binaries.clone(), program: None }
    }

    /// Returns another driver's node service, which is one privileged process.
    pub(super) fn peer(binaries: &Binaries, path: PathBuf) -> Self {
        Self {
            name: "other driver",
            role: Role::Peer,
            binaries: binaries.clone(),
            program: Some((path, vec!["node".to_owned()])),
        }
    }
}
