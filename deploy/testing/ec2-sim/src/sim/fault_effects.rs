//! The effects of a request's faults on the outcome and the reply.

use super::Reply;
use crate::faults::{Body, Fault, Garble, Loss};
use crate::wire::ApiError;
use std::time::Duration;

/// What the transport does with a reply after its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Sends the reply.
    #[default]
    Normal,
    /// Keeps the connection open for this long without a reply, then closes it.
    Hang(Duration),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Announces more bytes than it sends, then breaks the connection.
    Short,
    /// Waits for the first byte, then sends one byte at a time.
    Slow {
        /// The delay before the first byte.
        first: Duration,
        /// The delay between bytes.
        between: Duration,
    },
}

#[derive(Debug, Default)]
pub(super) struct FaultEffects {
    pub(crate) suppressed: bool,
    pub(crate) instead: Option<(ApiError, Body)>,
    pub(crate) garble: Option<Garble>,
    pub delivery: Delivery,
    /// The header `x-amz-retry-after`, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// How much later the request takes effect again, in milliseconds.
    pub(crate) duplicate_ms: Option<u64>,
    pub(crate) throttled: bool,
    /// The minimum age of the state that a read shows, in milliseconds.
    pub(crate) stale_ms: u64,
}

impl FaultEffects {
    /// Returns the effects of the given faults; later faults override earlier ones.
    pub(super) fn of(faults: &[Fault]) -> Self {
        let mut plan = Self::default();
        for fault in faults {
            plan.add(fault);
        }
        plan
    }

    fn add(&mut self, fault: &Fault) {
        match fault {
            Fault::Error { code, status, message, body, effect } => {
                self.suppressed |= !effect;
                self.instead = Some((ApiError::new(*status, code, message.clone()), *body));
            }
            Fault::Throttle { retry_after_ms } => {
                self.suppressed = true;
                self.throttled = true;
                self.retry_after_ms = *retry_after_ms;
                self.instead = Some((ApiError::throttled(), Body::Xml));
            }
            Fault::LoseReply { how, effect, hold_ms } => {
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
            Fault::Slow { first_byte_ms, byte_ms } => {
                self.delivery = Delivery::Slow {
                    first: Duration::from_millis(*first_byte_ms),
                    between: Duration::from_millis(*byte_ms),
                };
            }
            Fault::Duplicate { after_ms } => self.duplicate_ms = Some(*after_ms),
            Fault::Stale { ms } => self.stale_ms = *ms,
            // `Foreign` acts before or after the request; the other faults shape the action itself.
            Fault::Foreign { .. }
            | Fault::Unseen { .. }
            | Fault::StuckAttach { .. }
            | Fault::SkewAttach { .. }
            | Fault::StuckDetach { .. }
            | Fault::DeviceTaken {}
            | Fault::DeviceRaced {}
            | Fault::FailCreate { .. }
            | Fault::KeepSourceKey {}
            | Fault::FailSnapshot { .. }
            | Fault::TagsOneByOne { .. }
            | Fault::FailModify { .. }
            | Fault::Unsuccessful { .. } => {}
        }
    }
}

pub(super) fn garble(reply: &mut Reply, how: Option<Garble>, action: &str) {
    let Some(how) = how else { return };
    reply.status = 200;
    match how {
        Garble::Unparsable => reply.body = b"}{ this is not XML <".to_vec(),
        Garble::Empty => reply.body.clear(),
        Garble::WrongRoot => {
            reply.body = format!(
                "<Not{action}Response><requestId>{}</requestId></Not{action}Response>",
                reply.request_id
            )
            .into_bytes();
        }
        Garble::Cut => {
            let half = reply.body.len() * 2 / 3;
            reply.body.truncate(half);
        }
        Garble::Short => reply.delivery = Delivery::Short,
    }
}
