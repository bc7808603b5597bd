//! Bugs that drivers have had. The connection changes EC2's answers so that the driver does what a
//! driver with the bug would do; the driver itself has no code for it.

use ec2_sim::Reply;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownBug {
    /// After EC2 refuses a client token, uses the next one without a look for the volume that was
    /// made with the refused one.
    TokenBumpWithoutAdoption,
    /// Takes a snapshot without a look for the one that an earlier request of the name took.
    SnapshotWithoutLookUp,
    /// Fails the answer for all volumes of a call when one of them does not exist.
    BatchErrorToAll,
}

impl KnownBug {
    pub(crate) fn change(self, form: &[u8], reply: Reply) -> Reply {
        let form = String::from_utf8_lossy(form);
        let is = |action: &str| form.starts_with(&format!("Action={action}&"));
        let is_by_name = |tag: &str| form.contains(&format!("Name=tag%3A{tag}&"));
        match self {
            // EC2 says so of a token that is used up, and the driver then needs no other proof.
            Self::TokenBumpWithoutAdoption if is("CreateVolume") || is("CopyVolumes") => {
                let refused = "IdempotentParameterMismatch</Code><Message>";
                replace(refused, &format!("{refused}already been deleted: "), reply)
            }
            Self::TokenBumpWithoutAdoption
                if is("DescribeVolumes") && is_by_name("CSIVolumeName") =>
            {
                without_entries("DescribeVolumesResponse", "volumeSet", reply)
            }
            Self::SnapshotWithoutLookUp
                if is("DescribeSnapshots") && is_by_name("CSIVolumeSnapshotName") =>
            {
                without_entries("DescribeSnapshotsResponse", "snapshotSet", reply)
            }
            // The driver asks again without the volume that EC2's code says is missing; an error of
            // another code goes to every caller.
            Self::BatchErrorToAll if is("DescribeVolumes") => {
                replace("InvalidVolume.NotFound", "InvalidAttachment.NotFound", reply)
            }
            _ => reply,
        }
    }
}

fn replace(from: &str, to: &str, reply: Reply) -> Reply {
    let body = String::from_utf8_lossy(&reply.body).replace(from, to).into_bytes();
    Reply { body, ..reply }
}

fn without_entries(response: &str, set: &str, reply: Reply) -> Reply {
    if reply.status != 200 {
        return reply;
    }
    let id = &reply.request_id;
    let body = format!("<{response}><requestId>{id}</requestId><{set}/></{response}>");
    Reply { body: body.into_bytes(), ..reply }
}
