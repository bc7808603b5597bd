//! What an error of EC2 means for a create.

use ebs_csi_proto::{Condition, Failure};

use crate::ec2::{Ec2Error, Ec2ErrorKind};
use crate::ec2_failure::{failure, failure_as};

/// Errors of a create. The sources of a copy or restore are not found, not wrong.
pub(super) fn create_failure(error: &Ec2Error) -> Failure {
    match error.kind {
        Ec2ErrorKind::Other | Ec2ErrorKind::Unreadable => {
            failure_as(Condition::OperationPending, error)
        }
        _ => failure(error),
    }
}
