//! `ebs-csi-controller orphans`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;
use ebs_csi_ec2::{Ec2, Surroundings};
use ebs_csi_proto::program::{self, Exit};

use super::{Known, find};
use crate::process::config::{Config, duration};
use crate::process::settings;

/// The name of the command, its first argument.
pub const NAME: &str = "orphans";

/// Tells which volumes and snapshots the driver made for a cluster that the cluster does not know
/// any more. Reads the handles that it knows, one a line, from standard input; writes one line for
/// each orphan: id, name, size, when it was made, the instances that have it. Changes nothing.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-controller orphans")]
struct Flags {
    /// The cluster's id, as the controller's flag of that name has it: without it the volumes of
    /// other clusters cannot be told apart.
    #[arg(long, value_name = "ID", default_value = "")]
    k8s_tag_cluster_id: String,
    /// Leave out what is younger: its PersistentVolume may be missing because it is being made.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    older_than: Duration,
}

/// The arguments of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphansArguments {
    cluster_id: String,
    older_than: Duration,
}

impl OrphansArguments {
    /// Reads the arguments after the command's name.
    ///
    /// # Errors
    /// [`Exit`]: the help, or a wrong flag.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        let flags: Flags = program::parse(arguments)?;
        if flags.k8s_tag_cluster_id.is_empty() {
            return Err(Exit::usage(
                "--k8s-tag-cluster-id: give the controller's own, by which its volumes are known",
            ));
        }
        Ok(Self { cluster_id: flags.k8s_tag_cluster_id, older_than: flags.older_than })
    }

    /// Asks EC2 and returns the output: the orphans, and a line for the reader. Must run inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`Exit`].
    pub async fn run(
        &self,
        config: &Config,
        known: &Known,
    ) -> Result<(Vec<super::Orphan>, String), Exit> {
        let ec2 = Ec2::connect(settings::of_ec2(config), Surroundings::default())
            .await
            .map_err(Exit::setting)?;
        let orphans =
            find(&ec2, &self.cluster_id, known, self.older_than).await.map_err(Exit::failed)?;
        let snapshots = match known.snapshots.len() {
            0 => "; snapshots were not looked at, because no handle of one was given".to_owned(),
            number => format!(", {number} of snapshots"),
        };
        let summary = format!(
            "{} orphans of cluster {} in {}; known were {} handles of volumes{snapshots}",
            orphans.len(),
            self.cluster_id,
            ec2.region(),
            known.volumes.len(),
        );
        Ok((orphans, summary))
    }
}
