//! From a request to the parameters of the EC2 call: place, size, IOPS, source, tags.

use ebs_csi_ec2::{
    self as ec2, Call, Ec2, Ec2Error, Ec2ErrorKind, Snapshot, Volume, Zone, ZoneKind,
};
use ebs_csi_proto::{Condition, Failure, GiB};
use ebs_csi_wire::{SnapshotId, VolumeId};

use super::{Volumes, encryption, is_being_deleted};
use crate::request::topology::{self, Placement};
use crate::request::{CreateVolume, Source};
use crate::volume::iops::per_gib;

impl Volumes {
    /// Returns the call for a request, without the client token. The same request gives the same
    /// plan.
    pub(super) async fn plan(
        &self,
        call: &Call,
        request: &CreateVolume,
    ) -> Result<ec2::CreateVolume, Failure> {
        let (class, attributes) = (&request.class, &request.attributes);
        let plan = ec2::CreateVolume {
            size: request.size,
            kind: request.volume_type().to_owned(),
            throughput: attributes.throughput.or(class.throughput),
            multi_attach: request.multi_attach,
            tags: self.tags.of_volume(&request.name, class, attributes)?,
            ..ec2::CreateVolume::default()
        };
        if let Some(Source::Volume(source)) = &request.source {
            let source = self.copy_source(call, request, source).await?;
            let size = copy_size(request, source.size)?;
            let (encrypted, kms_key_id) = encryption::of_copy(class, &source);
            return Ok(ec2::CreateVolume {
                size,
                encrypted,
                kms_key_id,
                iops: self.iops(call, request, size, &Placement::of_volume(&source)).await?,
                copied: Some(source.id),
                ..plan
            });
        }
        let snapshot = match &request.source {
            Some(Source::Snapshot(snapshot)) => Some(snapshot.clone()),
            _ => None,
        };
        let from_encrypted = match &snapshot {
            Some(snapshot) => may_be_encrypted(&self.ec2, call, request, snapshot).await?,
            None => false,
        };
        let placement = match &request.placement {
            Some(placement) if placement.has_zone() => placement.clone(),
            Some(placement) => self.zone_of_outpost(call, placement).await?,
            None => self.any_zone(call, &request.name).await?,
        };
        Ok(ec2::CreateVolume {
            iops: self.iops(call, request, request.size, &placement).await?,
            zone: placement.zone,
            zone_id: placement.zone_id,
            outpost_arn: placement.outpost,
            encrypted: encryption::of_create(class, from_encrypted),
            kms_key_id: class.kms_key.clone(),
            snapshot,
            initialization_rate: class.initialization_rate,
            ..plan
        })
    }

    /// Returns the volume to copy, if it exists and may be copied to the requested place.
    async fn copy_source(
        &self,
        call: &Call,
        request: &CreateVolume,
        id: &VolumeId,
    ) -> Result<Volume, Failure> {
        let source = self
            .ec2
            .look_volume(call, id)
            .await
            .known()
            .map_err(|error| error.pending())?
            .filter(|volume| !is_being_deleted(volume))
            .ok_or_else(|| Failure::not_found("source volume", id))?;
        topology::check(
            request.requirement.as_ref(),
            &source.zone,
            source.zone_id.as_deref(),
            source.outpost_arn.as_deref(),
        )?;
        Ok(source)
    }

    /// Chooses a zone for a request that names none. The zone is the same for the same name, so
    /// that a repeated create is the same create.
    async fn any_zone(&self, call: &Call, name: &str) -> Result<Placement, Failure> {
        let zones = self.ec2.availability_zones(call).await.map_err(|e| create_failure(&e))?;
        let zones: Vec<&str> = zones
            .iter()
            .filter(|zone| holds_volumes(zone))
            .map(|zone| zone.name.as_str())
            .collect();
        match topology::choose_zone(&zones, name) {
            Some(zone) => Ok(Placement { zone: Some(zone.to_owned()), ..Default::default() }),
            None => Err(Failure::new(
                Condition::NoCapacityInTopology,
                "the request names no zone, and EC2 lists no available zone for this account and Region",
            )),
        }
    }

    async fn zone_of_outpost(
        &self,
        call: &Call,
        placement: &Placement,
    ) -> Result<Placement, Failure> {
        let outpost = placement.outpost.as_deref().unwrap_or_default();
        let found = self.ec2.zone_of_outpost(call, outpost).await;
        let zone = found.map_err(|e| create_failure(&e))?.ok_or_else(|| {
            Failure::invalid(
                "accessibility_requirements",
                format!(
                    "no instance shows the zone of Outpost {outpost}; name the zone beside it, by {}",
                    topology::ZONE
                ),
            )
        })?;
        Ok(Placement { zone: Some(zone), ..placement.clone() })
    }

    /// Returns the IOPS to request: explicit or by size, within the limits of type and zone. IOPS
    /// settings of a VolumeAttributesClass override the StorageClass's.
    async fn iops(
        &self,
        call: &Call,
        request: &CreateVolume,
        size: GiB,
        placement: &Placement,
    ) -> Result<Option<u32>, Failure> {
        let (explicit, ratio) = match (request.attributes.iops, request.attributes.iops_per_gib) {
            (None, None) => (request.class.iops, request.class.iops_per_gib),
            attributes => attributes,
        };
        let Some(wanted) = wanted_iops(explicit, ratio, size)? else {
            return Ok(None);
        };
        let limits = self.ceilings.limits(call, request.volume_type(), placement, wanted).await;
        Ok(Some(limits.fit(wanted, size, request.class.raise_iops)))
    }
}

/// Returns whether the snapshot may be encrypted, where that decides about the call. Refuses a
/// restore that EC2 would silently make larger than the limit, or refuse with a less helpful error.
async fn may_be_encrypted(
    ec2: &Ec2,
    call: &Call,
    request: &CreateVolume,
    id: &SnapshotId,
) -> Result<bool, Failure> {
    let is_needed = request.range.limit.is_some() || request.class.encrypted == Some(false);
    if !is_needed && encryption::is_wanted(&request.class) {
        return Ok(true);
    }
    match ec2.look_snapshot(call, id).await.known() {
        Ok(None) => Ok(true),
        Ok(Some(snapshot)) => {
            check_restore(request, &snapshot)?;
            Ok(snapshot.encrypted)
        }
        // The Go driver restores without this permission.
        Err(error) if !is_needed && error.kind == Ec2ErrorKind::Unauthorized => Ok(true),
        Err(error) => Err(create_failure(&error)),
    }
}

fn check_restore(request: &CreateVolume, snapshot: &Snapshot) -> Result<(), Failure> {
    let (id, size) = (&snapshot.id, snapshot.size);
    if snapshot.encrypted
        && request.class.encrypted == Some(false)
        && request.class.kms_key.is_none()
    {
        return Err(Failure::invalid(
            "parameters.encrypted",
            format!(
                "snapshot {id} is encrypted, and so is every volume made from it; remove the \
                 parameter or set it to \"true\""
            ),
        ));
    }
    match request.range.limit {
        Some(limit) if size.to_bytes() > limit => Err(Failure::new(
            Condition::CapacityOutOfRange,
            format!("snapshot {id} has {size}, which is more than limit_bytes {}", limit.0),
        )),
        _ => Ok(()),
    }
}

fn holds_volumes(zone: &Zone) -> bool {
    zone.kind == ZoneKind::AvailabilityZone && zone.available
}

/// Returns the size of a copy, which is at least its source's. A request without a size takes the
/// source's.
fn copy_size(request: &CreateVolume, source: GiB) -> Result<GiB, Failure> {
    let size = match request.range.required.0 {
        0 => request.size.max(source),
        _ => request.size,
    };
    let refuse = |text: String| Err(Failure::new(Condition::CapacityOutOfRange, text));
    if size < source {
        return refuse(format!(
            "capacity_range: the source volume has {source}, a copy cannot be smaller"
        ));
    }
    match request.range.limit {
        Some(limit) if size.to_bytes() > limit => refuse(format!(
            "capacity_range: the source volume has {source}, which is more than limit_bytes {}",
            limit.0
        )),
        _ => Ok(size),
    }
}

/// Returns the explicit IOPS, or those of the ratio.
pub(crate) fn wanted_iops(
    explicit: Option<u32>,
    ratio: Option<u32>,
    size: GiB,
) -> Result<Option<u32>, Failure> {
    match (explicit, ratio) {
        (Some(iops), _) => Ok(Some(iops)),
        (None, Some(ratio)) => per_gib(ratio, size).map(Some).ok_or_else(|| {
            Failure::invalid(
                "iopsPerGB",
                format!("{ratio} for each of {} is more IOPS than EC2 can express; lower it", size),
            )
        }),
        (None, None) => Ok(None),
    }
}

/// Returns the failure for an error of a create.
///
/// A quota of the account and Region is INTERNAL: external-provisioner sends a claim with
/// RESOURCE_EXHAUSTED back to the scheduler, and no other node has more quota.
pub(super) fn create_failure(error: &Ec2Error) -> Failure {
    match error.kind {
        Ec2ErrorKind::Other | Ec2ErrorKind::Unreadable => error.pending(),
        Ec2ErrorKind::VolumeQuota | Ec2ErrorKind::IopsQuota => error.failure_as(Condition::Local),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests;
