//! The failures of a create.

use ebs_csi_proto::{Condition, Failure};

use crate::ec2::csi_failure::{failure, failure_as};
use crate::ec2::{Ec2Error, Ec2ErrorKind};

/// Returns the failure for an error of a create. A source that does not exist is "not found", not
/// "invalid".
pub(super) fn create_failure(error: &Ec2Error) -> Failure {
    match error.kind {
        Ec2ErrorKind::Other | Ec2ErrorKind::Unreadable => {
            failure_as(Condition::OperationPending, error)
        }
        _ => failure(error),
    }
}
