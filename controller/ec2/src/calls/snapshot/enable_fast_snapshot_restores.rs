//! EnableFastSnapshotRestores.

use ebs_csi_wire::SnapshotId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::code::Ec2ErrorKind;
use crate::error::{Ec2Error, Sent};
use crate::sdk::call::send;

impl Ec2 {
    /// Enables fast restores of a snapshot in zones, which are given by name.
    ///
    /// # Errors
    /// EC2 answers with success and a list of failures; the first of them is the error here. Also
    /// the errors of every call.
    pub async fn enable_fast_snapshot_restores(
        &self,
        call: &Call,
        snapshot: &SnapshotId,
        zones: &[String],
    ) -> Result<(), Ec2Error> {
        let action = Action::EnableFastSnapshotRestores;
        self.core
            .send_change(call, action, || async {
                let request = self.core.client.enable_fast_snapshot_restores();
                let request = request.source_snapshot_ids(snapshot.as_str());
                let output = send!(action, request.set_availability_zones(Some(zones.to_vec())));
                let unsuccessful = output.unsuccessful();
                if unsuccessful.is_empty() {
                    return Ok(());
                }
                let mut errors =
                    unsuccessful.iter().flat_map(|u| u.fast_snapshot_restore_state_errors());
                let Some(failed) = errors.next() else {
                    return Err(Ec2Error::unreadable(
                        action,
                        "EC2 lists a failure without its reason",
                    ));
                };
                let code = failed.error().and_then(|e| e.code()).unwrap_or_default();
                let why = failed.error().and_then(|e| e.message()).unwrap_or_default();
                let text = format!("zone {}: {why}", failed.availability_zone().unwrap_or("?"));
                let kind = Ec2ErrorKind::of(code, why);
                let error = Ec2Error::new(kind, action, Sent::Answered, text);
                Err(Ec2Error { code: (!code.is_empty()).then(|| code.to_owned()), ..error })
            })
            .await
    }
}
