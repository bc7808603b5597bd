//! Requests about snapshots of several volumes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use ebs_csi_ec2::Snapshot;
use ebs_csi_parameters::SnapshotParameters;
use ebs_csi_proto::{Failure, csi};
use ebs_csi_wire::{SnapshotId, VolumeId};
use sha2::{Digest, Sha256};

use super::{node_local_handle, parse_id, parse_name, require};

const PREFIX: &str = "vgs-";
const DIGITS: usize = 32;

/// The id of a group: `vgs-` and the first 32 hexadecimal digits of the SHA-256 of the request's
/// name. EC2 has no client token for snapshots, and the id must be the same after a lost answer, a
/// restart and in another replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupId(String);

impl GroupId {
    fn of_name(name: &str) -> Self {
        Self(format!("{PREFIX}{}", digits(Sha256::digest(name))))
    }

    /// Returns the id, which is also the name tag of each snapshot of the group.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GroupId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        match text.strip_prefix(PREFIX) {
            Some(rest) if rest.len() == DIGITS && rest.bytes().all(is_digit) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "it is not {PREFIX} and {DIGITS} hexadecimal digits, so no group has it"
            )),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateGroup {
    pub id: GroupId,
    pub volumes: BTreeSet<VolumeId>,
    pub class: SnapshotParameters,
    /// The number of volumes, and a digest of the volumes and of the class's own parameters.
    pub request: String,
}

impl CreateGroup {
    /// Reads the request.
    ///
    /// # Errors
    /// A failure that names the field; a volume id that EC2 cannot have issued is "not found".
    pub(crate) fn parse(wire: &csi::CreateVolumeGroupSnapshotRequest) -> Result<Self, Failure> {
        const VOLUMES: &str = "source_volume_ids";
        let name = parse_name(&wire.name)?;
        if wire.source_volume_ids.is_empty() {
            return Err(Failure::missing(VOLUMES));
        }
        let mut volumes = BTreeSet::new();
        for id in &wire.source_volume_ids {
            node_local_handle::refuse(VOLUMES, require(VOLUMES, id)?, "have snapshots")?;
            volumes.insert(parse_id(VOLUMES, id)?);
        }
        let class = SnapshotParameters::parse(&wire.parameters)?;
        if class.outpost.is_some() {
            return Err(Failure::invalid(
                "parameters.outpostArn",
                "is not possible for a group; take a snapshot of each volume",
            ));
        }
        // The names that the sidecar adds are not part of the class.
        let own = |key: &str| !key.starts_with("csi.storage.k8s.io/");
        let mut parameters: Vec<_> = wire.parameters.iter().filter(|(key, _)| own(key)).collect();
        parameters.sort_unstable();
        let parameters = parameters.into_iter().flat_map(|(key, value)| [&**key, &**value]);
        let mut digest = Sha256::new();
        for text in volumes.iter().map(VolumeId::as_str).chain(parameters) {
            digest.update(text.len().to_string());
            digest.update(text);
        }
        let request = format!("{} {}", volumes.len(), digits(digest.finalize()));
        Ok(Self { id: GroupId::of_name(&name), volumes, class, request })
    }

    pub(crate) fn asks_for(&self, snapshot: &Snapshot) -> bool {
        snapshot.volume.as_ref().is_some_and(|volume| self.volumes.contains(volume))
    }
}

/// Returns the first 32 hexadecimal digits.
fn digits(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the snapshot ids of a request about a group. An id that EC2 cannot have issued belongs to
/// no group.
pub(crate) fn parse_members(ids: &[String]) -> Result<BTreeSet<SnapshotId>, Failure> {
    let parse = |id: &String| {
        SnapshotId::parse(id).map_err(|why| Failure::invalid("snapshot_ids", why.to_string()))
    };
    ids.iter().map(parse).collect()
}
