//! What the faults that struck a request do to it and to its reply.

use super::delivery::Delivery;
use crate::faults::kind::{Body, Fault, Garble, Loss};
use crate::wire::api_error::ApiError;
use std::time::Duration;

/// What faults do to the outcome and the reply.
#[derive(Debug, Default)]
pub(super) struct FaultEffects {
    /// Do not run the action.
    pub suppressed: bool,
    /// Answer this instead.
    pub instead: Option<(ApiError, Body)>,
    /// Break the reply.
    pub garble: Option<Garble>,
    /// How the reply travels.
    pub delivery: Delivery,
    /// `x-amz-retry-after`.
    pub retry_after_ms: Option<u64>,
    /// The request takes effect again so much later.
    pub duplicate_ms: Option<u64>,
    /// Counts as throttled.
    pub throttled: bool,
    /// The least age of what a read shows.
    pub stale_ms: u64,
}

impl FaultEffects {
    /// The plan that follows from faults; later ones win over earlier ones.
    pub(super) fn of(faults: &[Fault]) -> Self {
        let mut plan = Self::default();
        for fault in faults {
            plan.add(fault);
        }
        plan
    }

    fn add(&mut self, fault: &Fault) {
        match fault {
            Fault::Error {
                code,
                status,
                message,
                body,
                effect,
            } => {
                self.suppressed |= !effect;
                self.instead = Some((ApiError::new(*status, code, message.clone()), *body));
            }
            Fault::Throttle { retry_after_ms } => {
                self.suppressed = true;
                self.throttled = true;
                self.retry_after_ms = *retry_after_ms;
                self.instead = Some((ApiError::throttled(), Body::Xml));
            }
            Fault::LoseReply {
                how,
                effect,
                hold_ms,
            } => {
                self.suppressed |= !effect;
                self.delivery = match how {
                    Loss::Hang => Delivery::Hang(Duration::from_millis(*hold_ms)),
                    Loss::Close => Delivery::Close,
                    Loss::Reset => Delivery::Reset,
                };
            }
            Fault::Garble { how, effect } => {
                self.suppressed |= !effect;
                self.garble = Some(*how);
            }
            Fault::Slow {
                first_byte_ms,
                byte_ms,
            } => {
                self.delivery = Delivery::Slow {
                    first: Duration::from_millis(*first_byte_ms),
                    between: Duration::from_millis(*byte_ms),
                };
            }
            Fault::Duplicate { after_ms } => self.duplicate_ms = Some(*after_ms),
            Fault::Stale { ms } => self.stale_ms = *ms,
            // Answered where the caller is known.
            Fault::Refuse { .. } => self.suppressed = true,
            // Others act before or after it; these shape the action itself.
            Fault::Foreign { .. }
            | Fault::Unseen { .. }
            | Fault::StuckAttach { .. }
            | Fault::SkewAttach { .. }
            | Fault::LateDevice { .. }
            | Fault::StuckDetach { .. }
            | Fault::DeviceTaken { .. }
            | Fault::DeviceRaced {}
            | Fault::FailCreate { .. }
            | Fault::FailSnapshot { .. }
            | Fault::StuckSnapshot { .. }
            | Fault::FailModify { .. }
            | Fault::StuckModify { .. }
            | Fault::LateResize { .. }
            | Fault::Unsuccessful { .. }
            | Fault::EmptyPage {}
            | Fault::ExpireToken {} => {}
        }
    }
}
