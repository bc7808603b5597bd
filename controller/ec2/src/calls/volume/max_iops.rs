//! The most IOPS that EC2 grants.

use aws_sdk_ec2::types::{ResourceType, VolumeType};

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::error::code::Ec2ErrorKind;
use crate::model::Tags;
use crate::model::sdk_field::tag_specifications;
use crate::sdk::call::send;

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
