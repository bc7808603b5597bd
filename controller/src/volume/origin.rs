//! The writer of a volume's first content, found by the tags of the snapshot or volume that it is a
//! copy of. EC2 shows an account only the tags that the account itself set: a snapshot that another
//! account shares has none of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, ExpiringCache, LookResult, Volume};
use tokio::time::Instant;

use crate::request::tags::TagSettings;

/// How long the look may delay an attach.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer is remembered.
const WRITER_TTL: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Blank,
    Snapshot(Writer),
    Volume(Writer),
}

/// Whose the source of a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The source has the tags of this driver and cluster.
    Own,
    /// The source has other tags, or none.
    Another,
    /// EC2 does not show the source: it is gone, or the look failed.
    Unseen,
}

#[derive(Clone, Debug)]
pub(crate) struct Sources {
    ec2: Ec2,
    tags: Arc<TagSettings>,
    known: ExpiringCache<Writer>,
}

impl Sources {
    pub(crate) fn new(ec2: Ec2, tags: Arc<TagSettings>) -> Self {
        Self { ec2, tags, known: ExpiringCache::default() }
    }

    /// Returns where the volume's first content came from. A look that fails does not fail the
    /// attach.
    pub(crate) async fn origin_of(&self, volume: &Volume) -> Origin {
        let (ec2, call) = (&self.ec2, Call::until(Instant::now() + LOOK_TIMEOUT));
        if let Some(snapshot) = &volume.snapshot {
            let look =
                async { writer(&self.tags, ec2.look_snapshot(&call, snapshot).await, |s| s.tags) };
            return Origin::Snapshot(self.known_or_look(snapshot.as_str(), look).await);
        }
        if let Some(source) = &volume.source_volume {
            let look =
                async { writer(&self.tags, ec2.look_volume(&call, source).await, |v| v.tags) };
            return Origin::Volume(self.known_or_look(source.as_str(), look).await);
        }
        Origin::Blank
    }

    async fn known_or_look(&self, id: &str, look: impl Future<Output = Option<Writer>>) -> Writer {
        if let Some(known) = self.known.get(id) {
            return known;
        }
        match look.await {
            Some(writer) => {
                self.known.put(id, writer, WRITER_TTL);
                writer
            }
            None => Writer::Unseen,
        }
    }
}

/// Returns the writer; `None` when the look failed, so that the next caller looks again.
fn writer<T>(
    settings: &TagSettings,
    result: LookResult<T>,
    tags: impl FnOnce(T) -> BTreeMap<String, String>,
) -> Option<Writer> {
    match result {
        LookResult::Present(source) => Some(match settings.are_own(&tags(source)) {
            true => Writer::Own,
            false => Writer::Another,
        }),
        LookResult::Absent => Some(Writer::Unseen),
        LookResult::Unknown(error) => {
            tracing::warn!(%error, "the source of a volume cannot be seen; the node is told so, and mounts the copy as one of its own cluster");
            None
        }
    }
}
