use ebs_csi_ec2::{Action, Attachment, AttachmentState, Ec2Error, Ec2ErrorKind, LookResult, Sent};
use ebs_csi_wire::InstanceId;

use super::*;
use crate::example::example_volume;

pub(crate) fn node() -> InstanceId {
    InstanceId::parse("i-0aaaaaaaaaaaaaaa1").unwrap()
}

pub(crate) fn other_node() -> InstanceId {
    InstanceId::parse("i-0bbbbbbbbbbbbbbb2").unwrap()
}

/// The example volume at [`node`].
pub(crate) fn pair() -> Pair {
    Pair { volume: example_volume().id, node: node() }
}

/// When EC2 accepted an attach.
pub(crate) fn attach_time(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanoseconds: 0 })
}

pub(crate) fn attachment(node: InstanceId, state: AttachmentState) -> Attachment {
    Attachment {
        holder: node.to_string(),
        instance: Some(node),
        state,
        device: "/dev/xvdaa".to_owned(),
        attached: None,
        card: None,
    }
}

pub(crate) fn error(kind: Ec2ErrorKind) -> Ec2Error {
    Ec2Error::new(kind, Action::DescribeVolumes, Sent::Answered, "why")
}

pub(crate) fn unknown(kind: Ec2ErrorKind) -> LookResult<Volume> {
    LookResult::Unknown(error(kind))
}
