//! An account's limits other than request rates.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
