//! Override orders: a person's orders to detach exactly one attachment, received over the socket.

use std::time::Duration;

use ebs_csi_ec2::ExpiringCache;
use ebs_csi_safe_detach::{AttachTime, Fact, OverrideOrder};

use crate::request::Pair;

/// How long an order is valid that is not repeated.
const ORDER_TTL: Duration = Duration::from_secs(600);
/// How long an attachment is not forced a second time.
const FORCED_TTL: Duration = Duration::from_secs(3600);

/// The current override orders. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct OverrideOrders {
    orders: ExpiringCache<AttachTime>,
    forced: ExpiringCache<()>,
}

impl OverrideOrders {
    /// Records an order for the attachment that EC2 accepted at `since`.
    pub(super) fn order(&self, pair: &Pair, since: AttachTime) {
        self.orders.put(&pair.to_string(), since, ORDER_TTL);
    }

    /// Returns the order for this pair as `decide` reads it.
    pub(crate) fn of(&self, pair: &Pair) -> Fact<OverrideOrder> {
        match self.orders.get(&pair.to_string()) {
            Some(since) => Fact::Present(OverrideOrder {
                instance: pair.node.clone(),
                since,
                subject: pair.node.clone(),
            }),
            None => Fact::Absent,
        }
    }

    /// Returns whether there is an order that has not been used to force the attachment yet.
    pub(crate) fn is_unused(&self, pair: &Pair) -> bool {
        let since = self.orders.get(&pair.to_string());
        since.is_some_and(|since| self.forced.get(&attachment_key(pair, since)).is_none())
    }

    /// Uses the order. Returns `true` once for each attachment.
    pub(crate) fn use_up(&self, pair: &Pair) -> bool {
        let is_unused = self.is_unused(pair);
        if let Some(since) = self.orders.get(&pair.to_string()).filter(|_| is_unused) {
            self.forced.put(&attachment_key(pair, since), (), FORCED_TTL);
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
        overrides.order(&pair, at(1));
        assert!(matches!(overrides.of(&pair), Fact::Present(order) if order.since == at(1)));
        assert_eq!(overrides.of(&other), Fact::Absent);
        assert!(overrides.use_up(&pair));
        overrides.order(&pair, at(1));
        assert!(!overrides.use_up(&pair), "repeated, it is the same order");
        overrides.order(&pair, at(2));
        assert!(overrides.use_up(&pair), "another attachment");
        tokio::time::advance(ORDER_TTL).await;
        assert_eq!(overrides.of(&pair), Fact::Absent);
    }
}
