//! EC2's request token buckets: one per account, Region and action, and a smaller one for calls
//! without filters and paging.

use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRate {
    /// The number of tokens in a full bucket.
    pub capacity: f64,
    /// The refill, in tokens per second.
    pub(crate) refill: f64,
}

const fn rate(capacity: f64, refill: f64) -> TokenRate {
    TokenRate { capacity, refill }
}

pub(crate) fn documented(action: &str, unfiltered: bool) -> TokenRate {
    match action {
        "CreateVolume" | "DeleteVolume" | "CreateSnapshot" | "DeleteSnapshot"
        | "TerminateInstances" => rate(100.0, 5.0),
        "CreateTags" | "DeleteTags" => rate(100.0, 10.0),
        "DescribeInstances"
        | "DescribeInstanceStatus"
        | "DescribeSnapshots"
        | "DescribeVolumes"
            if unfiltered =>
        {
            rate(50.0, 10.0)
        }
        a if a.starts_with("Describe") => rate(100.0, 20.0),
        _ => rate(50.0, 5.0),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub(crate) enabled: bool,
    pub(crate) scale: f64,
    /// Rates that override the documented ones, by action.
    pub actions: BTreeMap<String, TokenRate>,
    /// The requests per second that other users of the account make, by action.
    pub foreign: BTreeMap<String, f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { enabled: true, scale: 1.0, actions: BTreeMap::new(), foreign: BTreeMap::new() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Buckets {
    levels: BTreeMap<String, (f64, Millis)>,
}

impl Buckets {
    pub(crate) fn take(
        &mut self,
        limits: &Limits,
        action: &str,
        unfiltered: bool,
        now: Millis,
    ) -> bool {
        let base =
            limits.actions.get(action).copied().unwrap_or_else(|| documented(action, unfiltered));
        let scale = limits.scale.max(0.0);
        let capacity = base.capacity * scale;
        let foreign = limits.foreign.get(action).copied().unwrap_or(0.0);
        let refill = (base.refill * scale - foreign).max(0.0);
        // Other users not only slow the refill: when they use more than the whole refill, the level
        // falls.
        let drain = (foreign - base.refill * scale).max(0.0);
        let key = if unfiltered && documented(action, true) != documented(action, false) {
            format!("{action}:unfiltered")
        } else {
            action.to_owned()
        };
        let (level, at) = self.levels.entry(key).or_insert((capacity, now));
        #[allow(clippy::cast_precision_loss, reason = "spans are far below 2^53 milliseconds")]
        let seconds = now.since(*at) as f64 / 1000.0;
        *level = (*level + seconds * (refill - drain)).clamp(0.0, capacity.max(0.0));
        *at = now;
        if !limits.enabled {
            return true;
        }
        let granted = *level >= 1.0;
        if granted {
            *level -= 1.0;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(b: &mut Buckets, l: &Limits, action: &str, n: usize, now: i64) -> usize {
        (0..n).filter(|_| b.take(l, action, false, Millis(now))).count()
    }

    #[test]
    fn calls_without_filter_have_their_own_smaller_bucket() {
        let (mut b, l) = (Buckets::default(), Limits::default());
        let unfiltered =
            (0..200).filter(|_| b.take(&l, "DescribeVolumes", true, Millis(0))).count();
        assert_eq!(unfiltered, 50);
        assert_eq!(granted(&mut b, &l, "DescribeVolumes", 200, 0), 100);
    }

    #[test]
    fn scale_override_foreign_load_and_switch_work() {
        let mut l = Limits { scale: 0.5, ..Limits::default() };
        assert_eq!(granted(&mut Buckets::default(), &l, "DeleteVolume", 150, 0), 50);
        l.actions.insert("DeleteVolume".to_owned(), rate(4.0, 1.0));
        assert_eq!(granted(&mut Buckets::default(), &l, "DeleteVolume", 150, 0), 2);
        let mut l = Limits::default();
        l.foreign.insert("AttachVolume".to_owned(), 5.0);
        let mut b = Buckets::default();
        assert_eq!(granted(&mut b, &l, "AttachVolume", 60, 0), 50);
        assert_eq!(granted(&mut b, &l, "AttachVolume", 60, 60_000), 0, "others take the refill");
        l.enabled = false;
        assert_eq!(granted(&mut b, &l, "AttachVolume", 60, 60_000), 60);
    }
}
