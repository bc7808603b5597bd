//! Volumes: created once for each name, and deleted.

mod adopt;
mod create;
mod encryption;
pub(crate) mod iops;
pub(crate) mod origin;
mod plan;
mod settle;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Ec2ErrorKind, ExpiringCache, LookResult, Volume, VolumeState};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::operation::operation_count::OperationCount;
use crate::operation::{Conflict, Operations};
use crate::request::CreateVolume;
use crate::request::tags::TagSettings;
use iops::IopsCeilings;
pub(crate) use plan::wanted_iops;

/// How long one deletion may take, including the wait for its turn.
const DELETE_TIME: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    ec2: Ec2,
    tags: Arc<TagSettings>,
    ceilings: IopsCeilings,
    /// By name, the next attempt when it is not the first.
    next_attempts: ExpiringCache<Attempt>,
    /// Names under which EC2 recently accepted, or may have accepted, a create.
    recently_requested: ExpiringCache<()>,
    /// By name, since when EC2 has refused the name's client token though no look-up shows a
    /// volume.
    mismatched_since: ExpiringCache<Instant>,
    /// By name, since when requests were refused regardless of the client token while no look-up
    /// showed a volume.
    refused_since: ExpiringCache<Instant>,
    /// By id, the volumes that this process has just created.
    recently_created: ExpiringCache<()>,
    /// By name, a request whose copy EC2 makes with another encryption or key, and the refusal.
    refused_copies: ExpiringCache<(CreateVolume, Failure)>,
    creating: Operations<String, CreateVolume, Volume>,
    deleting: Operations<VolumeId, (), ()>,
}

impl Volumes {
    pub(crate) fn new(
        ec2: Ec2,
        tags: Arc<TagSettings>,
        ceilings: IopsCeilings,
        operation_count: &OperationCount,
    ) -> Self {
        Self {
            ec2,
            tags,
            ceilings,
            next_attempts: ExpiringCache::default(),
            recently_requested: ExpiringCache::default(),
            mismatched_since: ExpiringCache::default(),
            refused_since: ExpiringCache::default(),
            recently_created: ExpiringCache::default(),
            refused_copies: ExpiringCache::default(),
            creating: Operations::new(Conflict::Refuse, operation_count.clone()),
            deleting: Operations::new(Conflict::Refuse, operation_count.clone()),
        }
    }

    /// Creates the volume, or finds the one that an earlier request of this name created. Waits
    /// until the volume can be attached.
    ///
    /// # Errors
    /// [`Condition::Incompatible`] when the name belongs to another kind of volume. A final
    /// condition only when it is certain that no volume of this name exists.
    pub(crate) async fn create(
        &self,
        request: CreateVolume,
        timeout: Option<Duration>,
    ) -> Result<Volume, Failure> {
        let this = self.clone();
        self.creating
            .run(request.name.clone(), request.clone(), timeout, move |cancellation| {
                this.create_now(request, cancellation)
            })
            .await
    }

    /// Deletes the volume. Succeeds when the volume does not exist.
    ///
    /// # Errors
    /// [`Condition::InUse`], naming the holders, while the volume is attached.
    pub(crate) async fn delete(
        &self,
        id: VolumeId,
        timeout: Option<Duration>,
    ) -> Result<(), Failure> {
        let this = self.clone();
        self.deleting
            .run(id.clone(), (), timeout, move |_| async move { this.delete_now(&id).await })
            .await
    }

    async fn delete_now(&self, id: &VolumeId) -> Result<(), Failure> {
        let call = Call::until(Instant::now() + DELETE_TIME);
        let Err(error) = self.ec2.delete_volume(&call, id).await else {
            return Ok(());
        };
        match error.kind {
            // EC2 may not know a volume yet that it has just created.
            Ec2ErrorKind::VolumeNotFound if self.recently_created.get(id.as_str()).is_some() => {
                match self.ec2.look_volume(&call, id).await {
                    LookResult::Absent => Ok(()),
                    LookResult::Present(volume) if is_being_deleted(&volume) => Ok(()),
                    LookResult::Present(_) => Err(error.pending()),
                    LookResult::Unknown(unknown) => Err(unknown.pending()),
                }
            }
            Ec2ErrorKind::VolumeNotFound | Ec2ErrorKind::MalformedId => Ok(()),
            Ec2ErrorKind::VolumeInUse => {
                // A look that does not show the volume does not disprove EC2's answer.
                let holders = match self.ec2.look_volume(&call, id).await.present() {
                    Some(volume) => holders(volume),
                    None => "an instance".to_owned(),
                };
                Err(Failure::new(
                    Condition::InUse,
                    format!("volume {id} is attached to {holders}; detach it first: {error}"),
                ))
            }
            Ec2ErrorKind::IncorrectState => Err(error.pending()),
            _ => Err(error.into()),
        }
    }
}

pub(crate) fn is_being_deleted(volume: &Volume) -> bool {
    matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted)
}

/// Returns the holders of a volume, for an error text.
pub(crate) fn holders(volume: &Volume) -> String {
    let holders: Vec<_> =
        volume.attachments.iter().map(|attachment| attachment.holder.as_str()).collect();
    match holders[..] {
        [] => "nothing that EC2 shows".to_owned(),
        _ => holders.join(", "),
    }
}

/// The number of a create under one name. An asynchronous failure uses up a token for hours; the
/// next number has a new token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt(u32);

impl Attempt {
    pub(crate) const FIRST: Self = Self(1);
    /// The most used-up tokens that one RPC tries before it answers; the next RPC continues after
    /// them.
    pub(crate) const MAX_PER_CALL: u32 = 12;

    #[must_use]
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the client token of the attempt under this volume name: 64 lower-case hexadecimal
    /// digits (EC2's limit is 64 characters).
    ///
    /// The first attempt hashes the name, later ones `name-2`, `name-3` …, as the Go driver does. A
    /// create that the Go driver left unfinished is therefore continued, not repeated.
    fn client_token(self, name: &str) -> String {
        let digest = match self.0 {
            0 | 1 => Sha256::digest(name),
            n => Sha256::digest(format!("{name}-{n}")),
        };
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_tokens_match_go_driver() {
        let second = Attempt::FIRST.next();
        for (attempt, token) in [
            (Attempt::FIRST, "a0c428246c73d0353af51551b47726e4b434656a2d5c93ab1f83d0928ee0a8ef"),
            (second, "559c18fe6459004b14980e7ccebb280e759977f7c374c1956a9c9aa925f8d358"),
        ] {
            assert_eq!(attempt.client_token("pvc-0001"), token);
        }
    }

    #[test]
    fn first_100_attempts_have_unique_client_tokens() {
        let mut attempt = Attempt::FIRST;
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            assert!(seen.insert(attempt.client_token("n")));
            attempt = attempt.next();
        }
    }
}
