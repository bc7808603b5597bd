//! A change that waits for its turn before it reads the facts that it depends on.
//!
//! While a queue is long, facts that are read on arrival are old when the change is sent, and each
//! arrival costs a Describe call of its own. Facts that are read when the turn is near are fresh,
//! and changes whose turns follow each other share a call.

use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use super::Ec2;
use crate::call::Call;
use crate::calls::Action;
use crate::error::Ec2Error;
use crate::model::look_result::LookResult;
use crate::model::volume::Volume;
use crate::pacing::lane::NEAR_TURN;

/// The part of the expected wait within which a caller in a long queue looks once: there may be
/// nothing to wait for.
const EARLY_PART: f64 = 0.1;

impl Ec2 {
    /// Waits in the queue of `action` until the turn is near, and returns the same work with the
    /// place. Its looks are answered by the time of the turn or later, and the change is sent from
    /// that place. Does not wait where a look on arrival satisfies `is_settled`; the work then has
    /// no place.
    ///
    /// # Errors
    /// [`Deadline`](crate::Ec2ErrorKind::Deadline) when the turn does not come near in time.
    pub async fn wait_in_queue(
        &self,
        call: &Call,
        action: Action,
        volume: &VolumeId,
        is_settled: impl Fn(&LookResult<Volume>) -> bool,
    ) -> Result<Call, Ec2Error> {
        let Some(place) = self.core.take_place(action) else {
            return Ok(call.clone());
        };
        let wait = place.estimated_wait();
        if wait > NEAR_TURN {
            let early = call.with_answers_by(Instant::now() + wait.mul_f64(EARLY_PART));
            if is_settled(&self.look_volume(&early, volume).await) {
                return Ok(call.clone());
            }
        }
        let turn = place.wait_until_near(self.core.deadline_of(call)).await?;
        Ok(call.with_answers_by(turn).with_place(place))
    }
}
