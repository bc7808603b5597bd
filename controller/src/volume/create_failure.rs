//! The failures of a create.

use ebs_csi_ec2::{Ec2Error, Ec2ErrorKind};
use ebs_csi_proto::{Condition, Failure};

use crate::csi_failure::{failure, failure_as};

/// Returns the failure for an error of a create.
///
/// A quota of the account and Region is INTERNAL: external-provisioner sends a claim with
/// RESOURCE_EXHAUSTED back to the scheduler, and no other node has more quota.
pub(super) fn create_failure(error: &Ec2Error) -> Failure {
    match error.kind {
        Ec2ErrorKind::Other | Ec2ErrorKind::Unreadable => {
            failure_as(Condition::OperationPending, error)
        }
        Ec2ErrorKind::VolumeQuota | Ec2ErrorKind::IopsQuota => failure_as(Condition::Local, error),
        _ => failure(error),
    }
}
