//! EC2's status checks of an instance that is to be fenced. They hint when to act, and never prove
//! that nothing writes.

use ebs_csi_ec2::{Check, InstanceStatus, LookResult};
use ebs_csi_proto::safe_detach::StatusChecks;
use ebs_csi_safe_detach::Fact;
use ebs_csi_wire::InstanceId;

/// Returns `Present` when the check of the instance or of its host fails, `Absent` when both pass.
///
/// The check of its volumes does not count: the cause that keeps a volume from completing I/O may
/// lie in the volume, and would follow the volume to any instance.
pub(super) fn impaired(status: &LookResult<InstanceStatus>) -> Fact<()> {
    let Some(status) = status.present() else {
        return Fact::Unknown;
    };
    match (&status.system, &status.instance) {
        (Check::Impaired, _) | (_, Check::Impaired) => Fact::Present(()),
        (Check::Ok, Check::Ok) => Fact::Absent,
        (Check::Unclear(_), _) | (_, Check::Unclear(_)) => Fact::Unknown,
    }
}

/// Returns the result of [`impaired`] for the wire.
pub(super) fn to_wire(status: &LookResult<InstanceStatus>) -> StatusChecks {
    match impaired(status) {
        Fact::Present(()) => StatusChecks::Failed,
        Fact::Absent => StatusChecks::Passed,
        Fact::Unknown => StatusChecks::Unspecified,
    }
}

pub(super) fn describe(id: &InstanceId, status: &LookResult<InstanceStatus>) -> String {
    match status {
        LookResult::Present(status) => format!(
            "EC2's status checks of instance {id}: system {}, instance {}, attached EBS {}",
            status.system, status.instance, status.attached_ebs
        ),
        LookResult::Absent => format!("EC2 shows no status checks of instance {id}"),
        LookResult::Unknown(error) => {
            format!("EC2's status checks of instance {id} are not known: {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Absent` needs both checks passed, anything else is unknown, and the attached-EBS check
    /// never counts.
    #[test]
    fn failed_status_check_makes_instance_impaired() {
        let unclear = || Check::Unclear("initializing".to_owned());
        let rows = [
            (Check::Ok, Check::Ok, Fact::Absent),
            (Check::Impaired, Check::Ok, Fact::Present(())),
            (Check::Ok, Check::Impaired, Fact::Present(())),
            (Check::Impaired, unclear(), Fact::Present(())),
            (unclear(), Check::Impaired, Fact::Present(())),
            (Check::Ok, unclear(), Fact::Unknown),
            (unclear(), Check::Ok, Fact::Unknown),
            (unclear(), unclear(), Fact::Unknown),
        ];
        for (system, instance, want) in rows {
            for attached_ebs in [Check::Ok, Check::Impaired, unclear()] {
                let status = LookResult::Present(InstanceStatus {
                    id: InstanceId::parse("i-0aaaaaaaaaaaaaaa1").unwrap(),
                    system: system.clone(),
                    instance: instance.clone(),
                    attached_ebs,
                });
                assert_eq!(impaired(&status), want, "{status:?}");
            }
        }
        assert_eq!(impaired(&LookResult::Absent), Fact::Unknown);
    }
}
