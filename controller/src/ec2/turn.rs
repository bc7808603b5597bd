//! A change that waits for its turn before what it depends on is read.
//!
//! While a queue is long, what is read on arrival is old when the change is sent, and each arrival costs a Describe call of its own. Read when the
//! turn is near it is fresh, and those whose turns follow each other share a call.

use std::sync::Arc;

use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use super::action::Action;
use super::client::Ec2;
use super::error::Ec2Error;
use super::lane::NEAR;
use super::seen::Seen;
use super::volume::Volume;

/// Whoever waits in a long queue looks once on arrival, within this part of the time that is expected: there may be nothing to wait for.
const EARLY_PART: f64 = 0.1;

impl Ec2 {
    /// The same, at a place in the queue of `action`, when the turn is near: what is looked at through it comes by then, or later, and the change is
    /// sent from that place. Where a look on arrival is `settled`, nothing is waited for.
    ///
    /// # Errors
    /// [`Deadline`](super::Ec2ErrorKind::Deadline) when the turn does not come near in time.
    pub(crate) async fn in_line(
        &self,
        action: Action,
        volume: &VolumeId,
        settled: impl Fn(&Seen<Volume>) -> bool,
    ) -> Result<Self, Ec2Error> {
        let Some(place) = self.core.place(action) else {
            return Ok(self.clone());
        };
        let wait = place.estimate();
        if wait > NEAR {
            let early = self.needing(Instant::now() + wait.mul_f64(EARLY_PART));
            if settled(&early.look_volume(volume).await) {
                return Ok(self.clone());
            }
        }
        let turn = place.near(self.until()).await?;
        let mut in_line = self.needing(turn);
        in_line.place = Some(Arc::new(place));
        Ok(in_line)
    }

    /// The same, for looks whose answers are needed only then.
    fn needing(&self, answers: Instant) -> Self {
        let mut needing = self.clone();
        needing.answers_by = Some(answers);
        needing
    }
}
