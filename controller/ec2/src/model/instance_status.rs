//! Instance status: the results of EC2's own checks of a running instance.

use std::fmt;

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::InstanceId;

use super::sdk_field::{self, Incomplete};

/// The status checks of an instance (EC2 API reference, `InstanceStatus`). EC2 makes them once a
/// minute, so they may be a minute old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceStatus {
    /// The instance.
    pub id: InstanceId,
    /// The check of the host: power, network, hardware.
    pub system: Check,
    /// The check of the instance: whether its operating system answers.
    pub instance: Check,
    /// The check of the attached EBS volumes: whether they complete I/O.
    pub attached_ebs: Check,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The check passes.
    Ok,
    /// The check fails.
    Impaired,
    /// The check has not been made or could not be made, or EC2 uses a word that this version does
    /// not know (`initializing`, `insufficient-data`).
    Unclear(String),
}

impl Check {
    fn read(status: Option<&sdk::SummaryStatus>) -> Self {
        match status {
            Some(sdk::SummaryStatus::Ok) => Self::Ok,
            Some(sdk::SummaryStatus::Impaired) => Self::Impaired,
            Some(other) => Self::Unclear(other.as_str().to_owned()),
            None => Self::Unclear("not shown".to_owned()),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Impaired => "impaired",
            Self::Unclear(word) => word,
        })
    }
}

impl InstanceStatus {
    pub(crate) fn read(answer: &sdk::InstanceStatus) -> Result<Self, Incomplete> {
        let summary = |answer: Option<&sdk::InstanceStatusSummary>| {
            Check::read(answer.and_then(sdk::InstanceStatusSummary::status))
        };
        let ebs = answer.attached_ebs_status();
        Ok(Self {
            id: sdk_field::id(answer.instance_id(), "instanceId", InstanceId::parse)?,
            system: summary(answer.system_status()),
            instance: summary(answer.instance_status()),
            attached_ebs: Check::read(ebs.and_then(sdk::EbsStatusSummary::status)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_other_than_ok_or_impaired_is_unclear() {
        let unclear = |word: &str| Check::Unclear(word.to_owned());
        let rows = [
            ("ok", Check::Ok),
            ("impaired", Check::Impaired),
            ("initializing", unclear("initializing")),
            ("insufficient-data", unclear("insufficient-data")),
            ("not-applicable", unclear("not-applicable")),
            ("a-word-of-later", unclear("a-word-of-later")),
        ];
        for (word, want) in rows {
            let status = sdk::SummaryStatus::from(word);
            assert_eq!(Check::read(Some(&status)), want, "{word}");
            let summary = sdk::InstanceStatusSummary::builder().status(status).build();
            let answer = sdk::InstanceStatus::builder()
                .instance_id("i-0aaaaaaaaaaaaaaa1")
                .system_status(summary)
                .build();
            let read = InstanceStatus::read(&answer).unwrap();
            assert_eq!(read.system, want, "{word}");
            // A check that EC2 leaves out is not ok.
            assert_eq!(read.instance, unclear("not shown"));
        }
        assert!(InstanceStatus::read(&sdk::InstanceStatus::builder().build()).is_err());
    }
}
