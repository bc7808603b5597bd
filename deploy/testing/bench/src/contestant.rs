//! A driver to measure.

use std::path::PathBuf;

use ebs_csi_sandbox::binaries::Binaries;

use crate::extent::Wanted;
use crate::report::figure::Role;

/// A driver to measure, or a server that does no work.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    /// The name in the tables.
    pub(crate) name: String,
    /// The role of its rows.
    pub(crate) role: Role,
    pub(crate) binaries: Binaries,
    /// Program and leading arguments of another driver; `None` for this driver.
    pub(crate) program: Option<(PathBuf, Vec<String>)>,
}

/// Returns this driver and, where its program is given, another driver run with the argument
/// `mode`.
pub(crate) fn contestants(binaries: &Binaries, wanted: &Wanted, mode: &str) -> Vec<Contestant> {
    let ours = Contestant {
        name: "driver".to_owned(),
        role: Role::Ours,
        binaries: binaries.clone(),
        program: None,
    };
    let other = wanted.peer.as_ref().map(|path| Contestant {
        name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        role: Role::Peer,
        program: Some((path.clone(), vec![mode.to_owned()])),
        ..ours.clone()
    });
    [ours].into_iter().chain(other).collect()
}
