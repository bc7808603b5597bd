//! CreateVolume, CopyVolumes, and the most IOPS that EC2 grants a new volume.

use aws_sdk_ec2::types::{ResourceType, VolumeType};
use ebs_csi_proto::GiB;
use ebs_csi_wire::{SnapshotId, VolumeId};

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::error::code::Ec2ErrorKind;
use crate::model::Tags;
use crate::model::sdk_field::{tag_specifications, to_i32};
use crate::model::volume::Volume;
use crate::sdk::call::{send, unreadable};

/// A volume to create, empty, restored from a snapshot or copied from a volume. Idempotent by its
/// token: the same token and parameters return the volume that the first call created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateVolume {
    /// The client token: at most 64 ASCII characters.
    pub client_token: String,
    /// The size; EC2 raises it to the snapshot's. At least that of a volume that is copied.
    pub size: GiB,
    /// The volume type (`gp3`).
    pub kind: String,
    /// The zone by name. EC2 refuses a name and an id together.
    pub zone: Option<String>,
    /// The zone by id.
    pub zone_id: Option<String>,
    /// The Outpost to create the volume on.
    pub outpost_arn: Option<String>,
    /// Whether to encrypt the volume; `None` leaves that to the source and to the account's
    /// default.
    pub encrypted: Option<bool>,
    /// The key to encrypt the volume with.
    pub kms_key_id: Option<String>,
    /// Provisioned IOPS.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// The snapshot whose data the volume gets.
    pub snapshot: Option<SnapshotId>,
    /// The volume to copy. A copy is in the zone of its source: the zone, the Outpost, the snapshot
    /// and its rate are not sent.
    pub copied: Option<VolumeId>,
    /// The rate in MiB/s at which the volume is filled from the snapshot.
    pub initialization_rate: Option<u32>,
    /// Whether several instances may attach the volume.
    pub multi_attach: bool,
    /// The volume's tags.
    pub tags: Tags,
}

/// The place and type of a possible volume, to find the most IOPS that EC2 grants there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IopsQuestion {
    /// The type.
    pub kind: String,
    /// The zone by name; preferred over the id.
    pub zone: Option<String>,
    /// The zone by id.
    pub zone_id: Option<String>,
    /// The Outpost.
    pub outpost_arn: Option<String>,
    /// Tags as a real volume would have them, because IAM policies may require some.
    pub tags: Tags,
}

/// The answer to an [`IopsQuestion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxIops {
    /// At most this many.
    AtMost(u32),
    /// The type has no IOPS parameter.
    NotSettable,
    /// EC2's answer did not say.
    NotSaid,
}

impl Ec2 {
    /// Creates a volume. Returns as soon as EC2 accepts; the volume is then `creating`.
    ///
    /// # Errors
    /// Any [`Ec2Error`]. A failed creation may also show later, as a volume in state `error` or
    /// none at all.
    pub async fn create_volume(
        &self,
        call: &Call,
        volume: &CreateVolume,
    ) -> Result<Volume, Ec2Error> {
        let created = match &volume.copied {
            None => self.send_create_volume(call, volume).await?,
            Some(source) => self.send_copy_volumes(call, volume, source).await?,
        };
        self.pollers.learn_zone(&created);
        Ok(created)
    }

    async fn send_create_volume(
        &self,
        call: &Call,
        volume: &CreateVolume,
    ) -> Result<Volume, Ec2Error> {
        let action = Action::CreateVolume;
        let sent = self.core.send_change(call, action, || async {
            let request = self
                .core
                .client
                .create_volume()
                .client_token(&volume.client_token)
                .size(to_i32(volume.size.0))
                .volume_type(VolumeType::from(volume.kind.as_str()))
                .set_availability_zone(volume.zone.clone())
                .set_availability_zone_id(volume.zone_id.clone())
                .set_outpost_arn(volume.outpost_arn.clone())
                .set_encrypted(volume.encrypted)
                .set_kms_key_id(volume.kms_key_id.clone())
                .set_iops(volume.iops.map(to_i32))
                .set_throughput(volume.throughput.map(to_i32))
                .set_snapshot_id(volume.snapshot.as_ref().map(ToString::to_string))
                .set_volume_initialization_rate(volume.initialization_rate.map(to_i32))
                .multi_attach_enabled(volume.multi_attach)
                .set_tag_specifications(tag_specifications(ResourceType::Volume, &volume.tags));
            let output = send!(action, request);
            Volume::read_created(&output).map_err(unreadable(action))
        });
        sent.await
    }

    async fn send_copy_volumes(
        &self,
        call: &Call,
        copy: &CreateVolume,
        source: &VolumeId,
    ) -> Result<Volume, Ec2Error> {
        let action = Action::CopyVolumes;
        let sent = self.core.send_change(call, action, || async {
            let request = self
                .core
                .client
                .copy_volumes()
                .client_token(&copy.client_token)
                .source_volume_id(source.as_str())
                .size(to_i32(copy.size.0))
                .volume_type(VolumeType::from(copy.kind.as_str()))
                .set_encrypted(copy.encrypted)
                .set_kms_key_id(copy.kms_key_id.clone())
                .set_iops(copy.iops.map(to_i32))
                .set_throughput(copy.throughput.map(to_i32))
                .multi_attach_enabled(copy.multi_attach)
                .set_tag_specifications(tag_specifications(ResourceType::Volume, &copy.tags));
            let output = send!(action, request);
            match output.volumes() {
                [copy] => Volume::read(copy).map_err(unreadable(action)),
                volumes => Err(Ec2Error::unreadable(
                    action,
                    format!("the answer holds {} volumes where one was asked for", volumes.len()),
                )),
            }
        });
        sent.await
    }

    /// Finds the most IOPS that EC2 grants, by a dry run with too many, whose refusal names the
    /// number.
    ///
    /// # Errors
    /// When the dry run failed for another reason (a missing permission, no answer).
    pub async fn max_iops(
        &self,
        call: &Call,
        question: &IopsQuestion,
    ) -> Result<MaxIops, Ec2Error> {
        let action = Action::CreateVolume;
        let result: Result<(), Ec2Error> = self
            .core
            .send_change(call, action, || async {
                let zone_id = question.zone_id.clone().filter(|_| question.zone.is_none());
                let tags = tag_specifications(ResourceType::Volume, &question.tags);
                let request = self.core.client.create_volume().dry_run(true).size(4);
                let request = request
                    .iops(i32::MAX)
                    .volume_type(VolumeType::from(question.kind.as_str()))
                    .set_availability_zone(question.zone.clone())
                    .set_availability_zone_id(zone_id)
                    .set_outpost_arn(question.outpost_arn.clone());
                send!(action, request.set_tag_specifications(tags));
                Ok(())
            })
            .await;
        match result {
            Ok(()) => Ok(MaxIops::NotSaid),
            Err(error)
                if matches!(
                    error.kind,
                    Ec2ErrorKind::DryRun
                        | Ec2ErrorKind::InvalidParameter
                        | Ec2ErrorKind::InvalidCombination
                        | Ec2ErrorKind::UnknownVolumeType
                        | Ec2ErrorKind::ZoneNotFound
                ) =>
            {
                Ok(read_max_iops(&error.message))
            }
            Err(error) => Err(error),
        }
    }
}

/// Parses the three messages with which EC2 refuses too many IOPS.
fn read_max_iops(message: &str) -> MaxIops {
    let lower = message.to_lowercase();
    if lower.contains("parameter iops is not supported") {
        return MaxIops::NotSettable;
    }
    let number_after = |marker: &str| -> Option<u32> {
        let rest = &lower[lower.find(marker)? + marker.len()..];
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    if lower.contains("volume iops")
        && lower.contains("too high")
        && let Some(max) = number_after("maximum is ")
    {
        return MaxIops::AtMost(max);
    }
    // "... greater than 64 TiB or 256K IOPS or ..."
    let thousands = lower.find("k iops").and_then(|end| {
        let start = lower[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        lower[start..end].parse::<u32>().ok()?.checked_mul(1000)
    });
    thousands.map_or(MaxIops::NotSaid, MaxIops::AtMost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_iops_is_parsed_from_ec2_refusal() {
        let rows = [
            ("Volume iops of 2147483647 is too high; maximum is 80000.", MaxIops::AtMost(80_000)),
            (
                "io2 volumes configured with greater than 64 TiB or 256K IOPS or 1000:1 IOPS:GB ratio are not supported",
                MaxIops::AtMost(256_000),
            ),
            ("The parameter iops is not supported for gp2 volumes.", MaxIops::NotSettable),
            ("Request would have succeeded, but DryRun flag is set.", MaxIops::NotSaid),
            ("Volume iops of 1 is too high; maximum is 99999999999.", MaxIops::NotSaid),
            ("é too high K IOPS", MaxIops::NotSaid),
            ("", MaxIops::NotSaid),
        ];
        for (message, want) in rows {
            assert_eq!(read_max_iops(message), want, "{message}");
        }
    }
}
