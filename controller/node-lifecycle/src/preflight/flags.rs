//! The command line of the preflight.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use ebs_csi_proto::program::{self, Exit};

use crate::flags::VERSION;

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One line for each.
    Text,
    /// One JSON document.
    Json,
}

/// Says what in a cluster this driver refuses or ignores. Reads only. Exit status: 0 nothing is
/// refused, 1 something is refused or could not be read, 64 wrong command line.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-node-lifecycle preflight", version = VERSION)]
pub struct Flags {
    /// A kubeconfig file; unset: the pod's service account.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How findings are written.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

impl Flags {
    /// Parses the command line after the word `preflight`.
    ///
    /// # Errors
    /// [`Exit`]: the help, the version, or a wrong flag.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        let mut flags: Self = program::parse(arguments)?;
        flags.kubeconfig = flags.kubeconfig.filter(|file| !file.as_os_str().is_empty());
        Ok(flags)
    }
}
