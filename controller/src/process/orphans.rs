//! Finds volumes and snapshots that the driver made for a cluster and that the cluster no longer
//! knows. They are listed, never changed.
//!
//! The cluster's tags select the resources in EC2, and the caller supplies a list of the handles
//! that the cluster knows, so no Kubernetes credential is needed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use clap::Parser;
use ebs_csi_ec2::{
    Call, Ec2, Ec2Error, ListPage, OwnTags, Page, Surroundings, Timestamp, VolumeState,
};
use ebs_csi_parameters::tag::{SNAPSHOT_NAME, VOLUME_NAME};
use ebs_csi_proto::GiB;
use ebs_csi_proto::program::{self, Exit};
use ebs_csi_wire::{SnapshotId, VolumeId};

use crate::process::config::{Config, duration};
use crate::request::tags::TagSettings;

/// The handles that a cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The handles of its PersistentVolumes.
    pub volumes: BTreeSet<VolumeId>,
    /// The handles of its VolumeSnapshotContents.
    pub snapshots: BTreeSet<SnapshotId>,
}

impl Known {
    /// Parses one handle per line. `aws://ZONE/vol-…`, the form of the in-tree plugin, is that
    /// volume; `local-ebs://…` names no resource of EC2 and is skipped.
    ///
    /// # Errors
    /// Names the number of a line that is none of these, because a handle that is not understood
    /// may be in use. Refuses a list without any volume, because every volume would then be an
    /// orphan.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut known = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(crate::request::node_local_handle::PREFIX) {
                continue;
            }
            let id = match line.strip_prefix("aws://") {
                Some(rest) => rest.rsplit('/').next().unwrap_or(rest),
                None => line,
            };
            if let Ok(volume) = VolumeId::parse(id) {
                known.volumes.insert(volume);
            } else if let Ok(snapshot) = SnapshotId::parse(id) {
                known.snapshots.insert(snapshot);
            } else {
                return Err(format!(
                    "line {number} of the handles, {line:?}, is neither a volume's nor a snapshot's id; give one handle a line and nothing else"
                ));
            }
        }
        if known.volumes.is_empty() {
            return Err(
                "standard input has no volume's handle, and without any every volume would be called an orphan; give the handles of all PersistentVolumes of the cluster, one a line"
                    .to_owned(),
            );
        }
        Ok(known)
    }
}

/// A resource that the cluster does not know. `Display` is one line of tab-separated fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// EC2's id.
    pub id: String,
    /// The name that it was made for: that of the PersistentVolume, or `snapshot-` and the uid of
    /// the VolumeSnapshot.
    pub name: String,
    /// The size.
    pub size: GiB,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// The instances that it is attached to.
    pub attached: Vec<String>,
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created =
            self.created.map_or_else(|| "unknown".to_owned(), |created| created.to_string());
        let attached = match &self.attached[..] {
            [] => "-".to_owned(),
            nodes => nodes.join(","),
        };
        write!(f, "{}\t{}\t{}\t{created}\t{attached}", self.id, self.name, self.size)
    }
}

/// Returns the resources of a cluster in EC2 that the cluster does not know and that are older than
/// `older_than`: a handle is recorded after its resource is made. Snapshots are checked only when a
/// snapshot's handle is known, because a cluster may keep none.
///
/// # Errors
/// The errors of EC2: no result is better than an incomplete one.
async fn find(
    ec2: &Ec2,
    cluster_id: &str,
    known: &Known,
    older_than: Duration,
) -> Result<Vec<Orphan>, Ec2Error> {
    let tags = TagSettings { cluster_id: Some(cluster_id.to_owned()), ..TagSettings::default() };
    let now = ec2.now().seconds;
    let is_old = |created: Option<Timestamp>| {
        let age = |at: Timestamp| u64::try_from(now - at.seconds).ok();
        created.is_none_or(|at| age(at).is_some_and(|age| age >= older_than.as_secs()))
    };
    let own = tags.of_own_volumes();
    let call = Call::default();
    let page = async |token| ec2.list_volumes(&call, None, token, &own).await;
    let volumes = read_every_page(page).await?;
    let mut orphans: Vec<_> = volumes
        .into_iter()
        .filter(|volume| {
            !matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted)
                && is_old(volume.created)
                && !known.volumes.contains(&volume.id)
        })
        .map(|volume| Orphan {
            id: volume.id.to_string(),
            name: volume.tags.get(VOLUME_NAME).cloned().unwrap_or_default(),
            size: volume.size,
            created: volume.created,
            attached: volume
                .attachments
                .iter()
                .filter_map(|attachment| Some(attachment.instance.as_ref()?.to_string()))
                .collect(),
        })
        .collect();
    if !known.snapshots.is_empty() {
        let own = OwnTags { key: SNAPSHOT_NAME, ..own };
        let page = async |token| {
            let all = ListPage { token, ..ListPage::default() };
            ec2.list_snapshots(&call, all).await
        };
        let snapshots = read_every_page(page).await?;
        let left = snapshots.into_iter().filter(|snapshot| {
            own.are_on(&snapshot.tags)
                && is_old(snapshot.started)
                && !known.snapshots.contains(&snapshot.id)
        });
        orphans.extend(left.map(|snapshot| Orphan {
            id: snapshot.id.to_string(),
            name: snapshot.tags.get(SNAPSHOT_NAME).cloned().unwrap_or_default(),
            size: snapshot.size,
            created: snapshot.started,
            attached: Vec::new(),
        }));
    }
    Ok(orphans)
}

async fn read_every_page<T, F>(page: impl Fn(Option<String>) -> F) -> Result<Vec<T>, Ec2Error>
where
    F: Future<Output = Result<Page<T>, Ec2Error>>,
{
    let mut entries = Vec::new();
    let mut token = None;
    loop {
        let read = page(token).await?;
        entries.extend(read.entries);
        match read.next {
            None => return Ok(entries),
            next => token = next,
        }
    }
}

/// The name of the command, its first argument.
pub const NAME: &str = "orphans";

/// Tells which volumes and snapshots the driver made for a cluster that the cluster does not know
/// any more. Reads the handles that it knows, one a line, from standard input; writes one line for
/// each orphan: id, name, size, when it was made, the instances that have it. Changes nothing.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-controller orphans")]
pub struct OrphansArguments {
    /// The cluster's id, as the controller's flag of that name has it: without it the volumes of
    /// other clusters cannot be told apart.
    #[arg(long, value_name = "ID", default_value = "")]
    k8s_tag_cluster_id: String,
    /// Leave out what is younger: its PersistentVolume may be missing because it is being made.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    older_than: Duration,
}

impl OrphansArguments {
    /// Reads the arguments after the command's name.
    ///
    /// # Errors
    /// [`Exit`]: the help, or a wrong flag.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        let flags: Self = program::parse(arguments)?;
        if flags.k8s_tag_cluster_id.is_empty() {
            return Err(Exit::usage(
                "--k8s-tag-cluster-id: give the controller's own, by which its volumes are known",
            ));
        }
        Ok(flags)
    }

    /// Asks EC2 and returns the output: the orphans, and a line for the reader. Must run inside a
    /// tokio runtime.
    pub async fn run(&self, config: &Config, known: &Known) -> Result<(Vec<Orphan>, String), Exit> {
        let ec2 = Ec2::connect(config.ec2.clone(), Surroundings::default())
            .await
            .map_err(Exit::setting)?;
        let cluster = &self.k8s_tag_cluster_id;
        let orphans = find(&ec2, cluster, known, self.older_than).await.map_err(Exit::failed)?;
        let snapshots = match known.snapshots.len() {
            0 => "; snapshots were not looked at, because no handle of one was given".to_owned(),
            number => format!(", {number} of snapshots"),
        };
        let summary = format!(
            "{} orphans of cluster {cluster} in {}; known were {} handles of volumes{snapshots}",
            orphans.len(),
            ec2.region(),
            known.volumes.len(),
        );
        Ok((orphans, summary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handles of other drivers are skipped; a header, a second column or a bare name is refused
    /// with its line number.
    #[test]
    fn handle_list_refuses_lines_that_are_not_handles() {
        let known = Known::read(
            "vol-0123456789abcdef0\n\n  aws://us-east-1a/vol-0123456789abcdef1 \nlocal-ebs://dev/xvdb\nsnap-0123456789abcdef2\r\nvol-0123456789abcdef0\n",
        )
        .unwrap();
        assert_eq!((known.volumes.len(), known.snapshots.len()), (2, 1));
        for (text, word) in [
            ("", "no volume's handle"),
            ("snap-0123456789abcdef2", "no volume's handle"),
            ("NAME\nvol-0123456789abcdef0", "line 1"),
            ("vol-0123456789abcdef0 Bound", "line 1"),
            ("vol-0123456789abcdef0\npvc-1", "line 2"),
        ] {
            let refused = Known::read(text).unwrap_err();
            assert!(refused.contains(word), "{text:?}: {refused}");
        }
    }

    #[test]
    fn orphan_prints_as_1_tab_separated_line() {
        let orphan = Orphan {
            id: "vol-0123456789abcdef0".to_owned(),
            name: "pvc-1".to_owned(),
            size: GiB(4),
            created: Timestamp::parse("2026-09-25T10:00:00Z"),
            attached: vec!["i-0aaaaaaaaaaaaaaa1".to_owned()],
        };
        assert_eq!(
            orphan.to_string(),
            "vol-0123456789abcdef0\tpvc-1\t4 GiB\t2026-09-25T10:00:00Z\ti-0aaaaaaaaaaaaaaa1"
        );
    }
}
