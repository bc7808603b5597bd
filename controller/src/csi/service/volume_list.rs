//! ListVolumes.
//!
//! Lists the cluster's own volumes that this driver created, recognized by their tags. The response
//! has no nodes: the attachments that EC2 shows need not be those that the caller requested.

use ebs_csi_ec2::{Call, Volume, VolumeState};
use ebs_csi_proto::csi::{self, list_volumes_response::Entry};
use tonic::{Request, Response};

use super::volume::to_wire;
use super::{Controller, RpcResult};
use crate::request::Source;
use crate::request::listing::PageRequest;

/// ListVolumes.
pub(super) async fn list(
    this: &Controller,
    request: Request<csi::ListVolumesRequest>,
) -> RpcResult<csi::ListVolumesResponse> {
    let wire = request.get_ref();
    let owned = this.tags.of_own_volumes();
    let (volumes, next_token) = PageRequest::parse(wire.max_entries, &wire.starting_token)?
        .read(|max, token| {
            let owned = &owned;
            async move {
                let mut page = this.ec2.list_volumes(&Call::default(), max, token, owned).await?;
                page.entries.retain(|volume| !is_deleted(volume));
                Ok(page)
            }
        })
        .await?;
    Ok(Response::new(csi::ListVolumesResponse {
        entries: volumes.iter().map(entry).collect(),
        next_token,
    }))
}

/// Returns whether the volume counts as deleted for the caller.
fn is_deleted(volume: &Volume) -> bool {
    matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted)
}

/// Builds an entry. The volume context is empty: EC2 does not store it.
fn entry(volume: &Volume) -> Entry {
    let copied = volume.source_volume.clone().map(Source::Volume);
    let source = copied.or_else(|| volume.snapshot.clone().map(Source::Snapshot));
    Entry { volume: Some(to_wire(volume, source)), status: None }
}
