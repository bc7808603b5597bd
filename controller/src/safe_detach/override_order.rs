//! Override orders: orders to detach exactly one attachment, received over the socket. The peer
//! says that a person gave the order; this process cannot tell.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::ExpiringCache;
use ebs_csi_safe_detach::{AttachTime, Fact, OverrideOrder};

use crate::request::Pair;

/// How long an order is valid that is not repeated.
const ORDER_TTL: Duration = Duration::from_secs(600);
/// How long an order is taken after a detach was asked for over CSI and has not ended. Longer than
/// a call of external-attacher and the pause before its next one (`--timeout=6m`,
/// `--retry-interval-max=5m` in the chart).
const ASKED_TTL: Duration = Duration::from_secs(900);
/// How long an attachment is not forced a second time.
const FORCED_TTL: Duration = Duration::from_secs(3600);

/// An order, as it was received.
#[derive(Clone, Debug)]
struct Order {
    since: AttachTime,
    /// The process that delivered it, and what that process says of it.
    by: Arc<str>,
}

/// The current override orders. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct OverrideOrders {
    asked: ExpiringCache<()>,
    orders: ExpiringCache<Order>,
    forced: ExpiringCache<()>,
}

impl OverrideOrders {
    pub(crate) fn note_asked(&self, pair: &Pair) {
        self.asked.put(&pair.to_string(), (), ASKED_TTL);
    }

    pub(crate) fn note_done(&self, pair: &Pair) {
        self.asked.remove(&pair.to_string());
    }

    /// Records an order for the attachment that EC2 accepted at `since`. Returns whether it is
    /// taken: nobody needs an order for a detach that is not asked for, and one for a volume in use
    /// must not lie ready.
    pub(super) fn order(&self, pair: &Pair, since: AttachTime, by: &str) -> bool {
        let is_asked = self.asked.get(&pair.to_string()).is_some();
        if is_asked {
            self.orders.put(&pair.to_string(), Order { since, by: by.into() }, ORDER_TTL);
        }
        is_asked
    }

    /// Returns who delivered the order, for the log.
    pub(crate) fn by(&self, pair: &Pair) -> Option<Arc<str>> {
        self.orders.get(&pair.to_string()).map(|order| order.by)
    }

    /// Returns the order for this pair as `decide` reads it.
    pub(crate) fn of(&self, pair: &Pair) -> Fact<OverrideOrder> {
        match self.orders.get(&pair.to_string()) {
            Some(order) => Fact::Present(OverrideOrder {
                instance: pair.node.clone(),
                since: order.since,
                subject: pair.node.clone(),
            }),
            None => Fact::Absent,
        }
    }

    /// Returns whether there is an order that has not been used to force the attachment yet.
    pub(crate) fn is_unused(&self, pair: &Pair) -> bool {
        let order = self.orders.get(&pair.to_string());
        order.is_some_and(|order| self.forced.get(&attachment_key(pair, order.since)).is_none())
    }

    /// Uses the order. Returns `true` once for each attachment.
    pub(crate) fn use_up(&self, pair: &Pair) -> bool {
        let is_unused = self.is_unused(pair);
        if let Some(order) = self.orders.get(&pair.to_string()).filter(|_| is_unused) {
            self.forced.put(&attachment_key(pair, order.since), (), FORCED_TTL);
        }
        is_unused
    }
}

fn attachment_key(pair: &Pair, since: AttachTime) -> String {
    format!("{pair} {}.{}", since.seconds, since.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::{other_node, pair};

    #[tokio::test(start_paused = true)]
    async fn override_order_expires_and_forces_each_attachment_once() {
        let pair = pair();
        let other = Pair { node: other_node(), ..pair.clone() };
        let at = |seconds| AttachTime { seconds, nanoseconds: 0 };
        let overrides = OverrideOrders::default();
        assert!(!overrides.use_up(&pair));
        assert!(!overrides.order(&pair, at(1), "test"), "nobody has asked for the detach");
        assert_eq!(overrides.of(&pair), Fact::Absent);
        overrides.note_asked(&pair);
        assert!(!overrides.order(&other, at(1), "test"), "another attachment's detach");
        assert!(overrides.order(&pair, at(1), "test"));
        assert_eq!(overrides.by(&pair).as_deref(), Some("test"));
        assert!(matches!(overrides.of(&pair), Fact::Present(order) if order.since == at(1)));
        assert_eq!(overrides.of(&other), Fact::Absent);
        assert!(overrides.use_up(&pair));
        assert!(overrides.order(&pair, at(1), "test"));
        assert!(!overrides.use_up(&pair), "repeated, it is the same order");
        assert!(overrides.order(&pair, at(2), "test"));
        assert!(overrides.use_up(&pair), "another attachment");
        tokio::time::advance(ORDER_TTL).await;
        assert_eq!(overrides.of(&pair), Fact::Absent);
        tokio::time::advance(ASKED_TTL.saturating_sub(ORDER_TTL)).await;
        assert!(!overrides.order(&pair, at(2), "test"), "the detach is no longer asked for");
        overrides.note_asked(&pair);
        overrides.note_done(&pair);
        assert!(!overrides.order(&pair, at(2), "test"), "the detach has ended");
    }
}
