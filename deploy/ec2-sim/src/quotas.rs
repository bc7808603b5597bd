//! Limits of an account other than request rates.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The limits. What is absent is not limited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Modifications of a volume in 24 hours.
    pub modifications_per_day: usize,
    /// Least distance between snapshots of a volume. Absent: 15,000 in profile `real`, else 0.
    pub snapshot_interval_ms: Option<u64>,
    /// TiB of volumes in a region, by type.
    pub storage_tib: BTreeMap<String, f64>,
    /// Provisioned operations per second in a region, by type.
    pub iops: BTreeMap<String, u64>,
    /// TiB of volumes under modification in a region, by the type that they become.
    pub modification_tib: BTreeMap<String, f64>,
    /// Snapshots in a region.
    pub snapshots: usize,
    /// Pending snapshots in a region.
    pub pending_snapshots: Option<usize>,
    /// Pending snapshots of a volume; of st1 and sc1 it is one.
    pub concurrent_snapshots: usize,
    /// Volume copies under way in a region.
    pub copies: usize,
    /// MiB per second of volumes that are being initialized at a rate that was asked for, in a region.
    pub initialization_rate: u32,
    /// Snapshots with fast restore times zones, in a region.
    pub fast_restores: usize,
    /// Whether CreateVolume tests the limits before the client token, so that a replay can be refused whose volume exists.
    pub before_token: bool,
    /// What zones have room for.
    pub capacity: Vec<Capacity>,
}

/// The room for volumes of a type in a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// The zone's name.
    pub zone: String,
    /// The volume type; absent: each type for itself.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// GiB.
    pub gib: u64,
    /// The status of the answer when it is used up. EC2's is not published: a server error.
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
            modification_tib: BTreeMap::new(),
            snapshots: 100_000,
            pending_snapshots: None,
            concurrent_snapshots: 5,
            copies: 5,
            initialization_rate: 5_000,
            fast_restores: 50,
            before_token: false,
            capacity: Vec::new(),
        }
    }
}

impl Quotas {
    /// Pending snapshots that a volume of this type may have.
    pub fn concurrent_snapshots_of(&self, volume_type: &str) -> usize {
        match volume_type {
            "st1" | "sc1" => self.concurrent_snapshots.min(1),
            _ => self.concurrent_snapshots,
        }
    }

    /// A copy with some of the limits changed.
    ///
    /// # Errors
    /// For a limit that there is not, or a value that it cannot have.
    pub fn changed(&self, change: serde_json::Value) -> Result<Self, String> {
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
            .changed(serde_json::json!({"snapshots": 3, "storage_tib": {"gp3": 0.5}}))
            .expect("changed");
        assert_eq!(
            (
                changed.snapshots,
                changed.copies,
                changed.storage_tib["gp3"]
            ),
            (3, 5, 0.5)
        );
        assert!(q.changed(serde_json::json!({"snapshot": 3})).is_err());
        assert!(q.changed(serde_json::json!([])).is_err());
    }
}
