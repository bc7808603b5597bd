//! Snapshots: one for each name, though EC2 has no token for them; deleted; listed.

mod create;
mod page;

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{SnapshotId, VolumeId};
use tokio::time::Instant;

use crate::ec2::{Ec2, Ec2ErrorKind, ListPage, Snapshot, SnapshotState};
use crate::ec2_failure::failure;
use crate::operations::{Conflict, Operations};
use crate::remembered::Remembered;
use crate::request::CreateSnapshot;
use crate::tags::TagSettings;
use crate::tally::Tally;

use page::PageToken;

/// How long one deletion may take, waiting for its turn included.
const DELETE_TIME: Duration = Duration::from_secs(120);
/// EC2 gives no page of fewer entries.
const LEAST_PAGE: usize = 5;
/// Pages that one listing reads while they are empty: EC2 filters after it has cut the pages.
const EMPTY_PAGES: usize = 20;

/// Makes, deletes and lists snapshots.
#[derive(Clone, Debug)]
pub struct Snapshots {
    ec2: Ec2,
    tags: Arc<TagSettings>,
    /// Names of which a create had no clear answer lately.
    doubtful: Remembered<()>,
    /// Names whose fast restores and lock are set.
    finished: Remembered<()>,
    creating: Operations<String, CreateSnapshot, Snapshot>,
    deleting: Operations<SnapshotId, (), ()>,
}

impl Snapshots {
    /// With nothing under way.
    pub fn new(ec2: Ec2, tags: Arc<TagSettings>, tally: &Tally) -> Self {
        Self {
            ec2,
            tags,
            doubtful: Remembered::default(),
            finished: Remembered::default(),
            creating: Operations::new(Conflict::Refuse, tally.clone()),
            deleting: Operations::new(Conflict::Refuse, tally.clone()),
        }
    }

    /// Takes the snapshot, or finds the one that an earlier request of this name took. It need not be complete.
    ///
    /// # Errors
    /// [`Condition::Incompatible`] when the name belongs to a snapshot of another volume; and what EC2 says.
    pub async fn create(
        &self,
        request: CreateSnapshot,
        patience: Option<Duration>,
    ) -> Result<Snapshot, Failure> {
        let this = self.clone();
        self.creating
            .run(
                request.name.clone(),
                request.clone(),
                patience,
                move |mandate| this.make(request, mandate),
            )
            .await
    }

    /// Deletes the snapshot. A snapshot that does not exist is deleted.
    ///
    /// # Errors
    /// [`Condition::InUse`] while an image uses it or a lock holds it.
    pub async fn delete(&self, id: SnapshotId, patience: Option<Duration>) -> Result<(), Failure> {
        let ec2 = self.ec2.clone();
        self.deleting
            .run(id.clone(), (), patience, move |_| async move {
                match ec2
                    .by(Instant::now() + DELETE_TIME)
                    .delete_snapshot(&id)
                    .await
                {
                    Ok(()) => Ok(()),
                    Err(error)
                        if matches!(
                            error.kind,
                            Ec2ErrorKind::SnapshotNotFound | Ec2ErrorKind::MalformedId
                        ) =>
                    {
                        Ok(())
                    }
                    Err(error) => Err(failure(&error)),
                }
            })
            .await
    }

    /// The snapshot with this id, when there is one.
    ///
    /// # Errors
    /// What EC2 says; a snapshot that EC2 could not make is an error that says so, because it never becomes ready.
    pub async fn get(&self, id: &SnapshotId) -> Result<Option<Snapshot>, Failure> {
        let found = self
            .ec2
            .look_snapshot(id)
            .await
            .known()
            .map_err(|error| failure(&error))?;
        match found {
            Some(snapshot) if snapshot.state == SnapshotState::Error => Err(failed(&snapshot)),
            found => Ok(found),
        }
    }

    /// At most `most` snapshots of this account (0: as many as EC2 gives at once), of one volume if asked, and where the next page begins.
    ///
    /// # Errors
    /// [`Condition::BadStartingToken`]; and what EC2 says.
    pub async fn list(
        &self,
        volume: Option<VolumeId>,
        most: usize,
        start: &str,
    ) -> Result<(Vec<Snapshot>, String), Failure> {
        let PageToken { mut skip, mut page } = PageToken::parse(start)?;
        for _ in 0..EMPTY_PAGES {
            let asked = ListPage {
                max: u32::try_from(most.max(LEAST_PAGE))
                    .ok()
                    .filter(|_| most > 0),
                token: page.clone(),
                volume: volume.clone(),
            };
            let answer = self
                .ec2
                .list_snapshots(asked)
                .await
                .map_err(|error| failure(&error))?;
            let whole = answer.entries.len();
            let taken = if most == 0 { whole } else { most };
            let entries: Vec<_> = answer.entries.into_iter().skip(skip).take(taken).collect();
            let next = if skip + entries.len() < whole {
                Some(PageToken {
                    skip: skip + entries.len(),
                    page: page.clone(),
                })
            } else {
                answer.next.clone().map(|page| PageToken {
                    skip: 0,
                    page: Some(page),
                })
            };
            match (&next, entries.is_empty()) {
                (Some(_), true) => (skip, page) = (0, answer.next),
                _ => {
                    return Ok((
                        entries,
                        next.map_or(String::new(), |token| token.to_string()),
                    ));
                }
            }
        }
        let token = PageToken { skip, page };
        Ok((Vec::new(), token.to_string()))
    }
}

fn failed(snapshot: &Snapshot) -> Failure {
    Failure::new(
        Condition::Local,
        format!(
            "EC2 could not make snapshot {}: {}; delete it and take another",
            snapshot.id,
            snapshot.message.as_deref().unwrap_or("it gives no reason")
        ),
    )
}
