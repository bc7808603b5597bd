//! EC2's limits: how often an account may call, and how many resources it may have.

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
        "CreateVolume" | "DeleteVolume" | "CreateSnapshot" | "CreateSnapshots"
        | "DeleteSnapshot" | "TerminateInstances" => rate(100.0, 5.0),
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

/// The limits. An absent key means no limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// The maximum number of modifications of a volume in 24 hours.
    pub(crate) modifications_per_day: usize,
    /// The minimum interval between two snapshots of a volume, in milliseconds. Absent: 15,000 in
    /// profile `real`, otherwise 0.
    pub(crate) snapshot_interval_ms: Option<u64>,
    /// The maximum TiB of volumes in a Region, by type.
    pub(crate) storage_tib: BTreeMap<String, f64>,
    /// The maximum provisioned operations per second in a Region, by type.
    pub iops: BTreeMap<String, u64>,
    /// The maximum number of pending snapshots in a Region.
    pub(crate) pending_snapshots: Option<usize>,
    /// The maximum number of pending snapshots of a volume; at most one for st1 and sc1.
    pub(crate) concurrent_snapshots: usize,
    /// The maximum number of volume copies in progress in a Region.
    pub(crate) copies: usize,
    /// Whether CreateVolume checks the limits before the client token. A replay can then be refused
    /// although its volume exists.
    pub(crate) before_token: bool,
    pub capacity: Vec<Capacity>,
}

/// The capacity of a zone for volumes of each type separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    pub zone: String,
    pub gib: u64,
    /// The HTTP status of the error when the capacity is used up. EC2 does not publish its status;
    /// the default is a server error.
    #[serde(default = "internal")]
    pub status: u16,
}

fn internal() -> u16 {
    500
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            modifications_per_day: 4,
            snapshot_interval_ms: None,
            storage_tib: BTreeMap::new(),
            iops: BTreeMap::new(),
            pending_snapshots: None,
            concurrent_snapshots: 5,
            copies: 5,
            before_token: false,
            capacity: Vec::new(),
        }
    }
}

impl Quotas {
    pub(crate) fn concurrent_snapshots_of(&self, volume_type: &str) -> usize {
        match volume_type {
            "st1" | "sc1" => self.concurrent_snapshots.min(1),
            _ => self.concurrent_snapshots,
        }
    }

    pub(crate) fn changed(&self, change: serde_json::Value) -> Result<Self, String> {
        let serde_json::Value::Object(change) = change else {
            return Err("the body must be an object of limits".to_owned());
        };
        let mut all = serde_json::to_value(self).map_err(|e| e.to_string())?;
        if let Some(all) = all.as_object_mut() {
            all.extend(change);
        }
        serde_json::from_value(all).map_err(|e| e.to_string())
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

    #[test]
    fn quota_change_keeps_unnamed_quotas() {
        let q = Quotas::default();
        let changed = q
            .changed(serde_json::json!({"copies": 3, "storage_tib": {"gp3": 0.5}}))
            .expect("changed");
        assert_eq!(
            (changed.copies, changed.concurrent_snapshots, changed.storage_tib["gp3"]),
            (3, 5, 0.5)
        );
        assert!(q.changed(serde_json::json!({"copy": 3})).is_err());
        assert!(q.changed(serde_json::json!([])).is_err());
    }
}
