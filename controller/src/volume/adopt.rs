//! Whether a volume that already has the name is the requested one.

use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Ec2ErrorKind, Volume, VolumeState};
use ebs_csi_proto::Failure;
use ebs_csi_wire::{SnapshotId, VolumeId};

use super::encryption;
use crate::request::{CreateVolume, Source};

/// What the volumes of one name mean for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No live volume has the name.
    Nothing,
    /// This volume fits the request.
    Fitting(Box<Volume>),
    /// A live volume has the name but differs from the request; the text gives the difference.
    Other(String),
}

/// Evaluates the volumes that have the name. Of several that fit, returns the oldest.
fn choose(request: &CreateVolume, mut volumes: Vec<Volume>) -> Found {
    volumes.retain(|volume| {
        !matches!(volume.state, VolumeState::Error | VolumeState::Deleting | VolumeState::Deleted)
    });
    volumes.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
    if let [kept, others @ ..] = &volumes[..]
        && !others.is_empty()
    {
        let others: Vec<_> = others.iter().map(|volume| volume.id.as_str()).collect();
        tracing::warn!(
            name = request.name,
            kept = kept.id.as_str(),
            others = others.join(","),
            "several volumes bear one name; the oldest that fits is used, look whether the others hold data and delete them"
        );
    }
    let mut reason = None;
    for volume in volumes {
        match difference(request, &volume) {
            None => return Found::Fitting(Box::new(volume)),
            Some(text) => reason = reason.or(Some(text)),
        }
    }
    reason.map_or(Found::Nothing, Found::Other)
}

/// Returns the difference between a volume and the request; `None` when the volume fits. IOPS and
/// throughput are not compared, since they can be modified later.
pub(super) fn difference(request: &CreateVolume, volume: &Volume) -> Option<String> {
    let id = &volume.id;
    let bytes = volume.size.to_bytes();
    let too_large = request.range.limit.is_some_and(|limit| bytes > limit);
    if bytes < request.range.required
        || too_large
        || (request.range.required.0 == 0 && volume.size < request.size)
    {
        return Some(format!("{id} has {}, {} are asked for", volume.size, request.size));
    }
    if !volume.kind.is_empty() && !volume.kind.eq_ignore_ascii_case(request.volume_type()) {
        return Some(format!("{id} is {}, {} is asked for", volume.kind, request.volume_type()));
    }
    if request.multi_attach && !volume.multi_attach {
        return Some(format!("{id} cannot be attached to several instances"));
    }
    if let Some(text) = encryption::difference(request, volume) {
        return Some(text);
    }
    let (snapshot, source): (Option<&SnapshotId>, Option<&VolumeId>) = match &request.source {
        None => (None, None),
        Some(Source::Snapshot(snapshot)) => (Some(snapshot), None),
        Some(Source::Volume(volume)) => (None, Some(volume)),
    };
    if snapshot.is_some() && volume.snapshot.as_ref() != snapshot
        || source.is_some() && volume.source_volume.as_ref() != source
        || request.source.is_none() && (volume.snapshot.is_some() || volume.source_volume.is_some())
    {
        return Some(format!("{id} was made from another source"));
    }
    if let Some(placement) = &request.placement
        && !placement.admits(&volume.zone, volume.zone_id.as_deref(), volume.outpost_arn.as_deref())
    {
        return Some(format!("{id} is in zone {}", volume.zone));
    }
    None
}

/// Finds the volumes that have the name. When there is none, looks once more after `lag`.
pub(super) async fn find(
    ec2: &Ec2,
    call: &Call,
    request: &CreateVolume,
    lag: Duration,
) -> Result<Found, Failure> {
    let mut has_looked_again = lag.is_zero();
    loop {
        let volumes =
            ec2.volumes_by_name(call, &request.name).await.map_err(|error| error.pending())?;
        for failed in volumes.iter().filter(|v| v.state == VolumeState::Error) {
            delete_failed(ec2, call, failed).await?;
        }
        match choose(request, volumes) {
            Found::Nothing if !has_looked_again => {
                has_looked_again = true;
                tokio::time::sleep(lag).await;
            }
            found => return Ok(found),
        }
    }
}

/// Deletes a volume that EC2 failed to create: the volume has this request's name, is of no use,
/// and nobody else would delete it.
pub(super) async fn delete_failed(ec2: &Ec2, call: &Call, volume: &Volume) -> Result<(), Failure> {
    match ec2.delete_volume(call, &volume.id).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind == Ec2ErrorKind::VolumeNotFound => Ok(()),
        Err(error) => Err(error.pending().context(format!(
            "EC2 failed to make {} (state error) and it must be deleted before it is made anew",
            volume.id
        ))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ebs_csi_proto::GiB;
    use ebs_csi_proto::csi;

    use ebs_csi_ec2::Timestamp;

    use crate::example::example_volume;

    fn volume(n: u8) -> Volume {
        Volume {
            id: VolumeId::parse(&format!("vol-{n:017x}")).unwrap(),
            size: GiB(4),
            zone_id: Some("use1-az6".to_owned()),
            iops: Some(3000),
            throughput: Some(125),
            created: Some(Timestamp { seconds: i64::from(n), nanoseconds: 0 }),
            ..example_volume()
        }
    }

    /// Returns a request for a volume of at least `size` GiB.
    pub(in crate::volume) fn request(size: i64) -> CreateVolume {
        use csi::volume_capability::access_mode::Mode;
        use csi::volume_capability::{AccessMode, AccessType, MountVolume};
        CreateVolume::parse(&csi::CreateVolumeRequest {
            name: "pvc-1".to_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes: size << 30, limit_bytes: 0 }),
            volume_capabilities: vec![csi::VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
                access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter as i32 }),
            }],
            ..Default::default()
        })
        .unwrap()
    }

    #[test]
    fn volume_fits_if_caller_sees_no_difference() {
        type Change = fn(&mut Volume, &mut CreateVolume);
        let rows: [(Change, bool); 12] = [
            (|_, _| {}, true),
            (|v, _| v.size = GiB(3), false),
            (|v, _| v.size = GiB(5), true),
            (
                |v, r| {
                    v.size = GiB(5);
                    r.range.limit = Some(GiB(4).to_bytes());
                },
                false,
            ),
            (|v, _| v.kind = "io2".to_owned(), false),
            (|v, _| v.iops = Some(9000), true),
            (|_, r| r.class.encrypted = Some(true), false),
            (|_, r| r.multi_attach = true, false),
            (|v, _| v.snapshot = SnapshotId::parse("snap-0123456789abcdef0").ok(), false),
            (
                |_, r| {
                    r.source =
                        SnapshotId::parse("snap-0123456789abcdef0").ok().map(Source::Snapshot)
                },
                false,
            ),
            (
                |_, r| r.placement.get_or_insert_default().zone = Some("us-east-1b".to_owned()),
                false,
            ),
            (
                |_, r| r.placement.get_or_insert_default().zone_id = Some("use1-az6".to_owned()),
                true,
            ),
        ];
        for (at, (change, fits)) in rows.into_iter().enumerate() {
            let (mut volume, mut request) = (volume(1), request(4));
            change(&mut volume, &mut request);
            let difference = difference(&request, &volume);
            assert_eq!(difference.is_none(), fits, "row {at}: {difference:?}");
        }
    }

    /// Volumes in error, deleting or deleted count as absent. A live volume that does not fit is
    /// `Found::Other`.
    #[test]
    fn oldest_fitting_live_volume_is_kept() {
        let dead = |n, state| Volume { state, ..volume(n) };
        let none = vec![
            dead(1, VolumeState::Error),
            dead(2, VolumeState::Deleting),
            dead(3, VolumeState::Deleted),
        ];
        assert_eq!(choose(&request(4), none), Found::Nothing);
        let several = vec![
            volume(9),
            dead(1, VolumeState::Error),
            volume(5),
            Volume { size: GiB(1), ..volume(2) },
        ];
        match choose(&request(4), several) {
            Found::Fitting(kept) => assert_eq!(kept.id, volume(5).id),
            other => panic!("{other:?}"),
        }
        assert!(matches!(choose(&request(8), vec![volume(1)]), Found::Other(_)));
    }
}
