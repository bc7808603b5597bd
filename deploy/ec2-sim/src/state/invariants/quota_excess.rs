//! Checks whether an account exceeds its limits, counting existing resources rather than accepted
//! requests.

use crate::limits::quotas::Quotas;
use crate::state::realm::usage;
use crate::state::realm::{Key, Realm};
use crate::state::resources::snapshot::Life;
use crate::state::resources::volume::Origin;
use crate::time::{DAY_MS, Millis};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A quantity that a limit restricts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Measure {
    /// The GiB of volumes of a type.
    Storage(String),
    /// The provisioned operations per second of volumes of a type.
    Iops(String),
    /// The GiB of volumes of a type in a zone.
    Room(String, String),
    /// The modifications of a volume in 24 hours.
    Modifications(String),
    /// The MiB per second of initialization at requested rates.
    Initialization,
    /// The volume copies in progress.
    Copies,
    /// The snapshots.
    Snapshots,
    /// The pending snapshots.
    Pending,
    /// The pending snapshots of a volume.
    PendingOf(String),
    /// The fast snapshot restores.
    FastRestores,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(kind) => write!(f, "GiB of {kind}"),
            Self::Iops(kind) => write!(f, "IOPS of {kind}"),
            Self::Room(zone, kind) => write!(f, "GiB of {kind} in {zone}"),
            Self::Modifications(id) => write!(f, "modifications of {id} in 24 hours"),
            Self::Initialization => f.write_str("MiB/s of initialization"),
            Self::Copies => f.write_str("copies under way"),
            Self::Snapshots => f.write_str("snapshots"),
            Self::Pending => f.write_str("pending snapshots"),
            Self::PendingOf(id) => write!(f, "pending snapshots of {id}"),
            Self::FastRestores => f.write_str("fast restores"),
        }
    }
}

impl Measure {
    /// Returns the used and the permitted amount, or `None` if there is no limit.
    fn taken(&self, realm: &Realm, quotas: &Quotas, now: Millis) -> Option<(u64, u64)> {
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Some(match self {
            Self::Storage(kind) => (
                usage::storage_gib(realm, kind, None, None),
                gib(*quotas.storage_tib.get(kind)?),
            ),
            Self::Iops(kind) => (usage::iops(realm, kind, None), *quotas.iops.get(kind)?),
            Self::Room(zone, kind) => {
                let of = quotas.capacity.iter().filter(|c| {
                    c.zone == *zone && c.volume_type.as_deref().is_none_or(|t| t == kind)
                });
                let most = of.map(|c| c.gib).min()?;
                (usage::storage_gib(realm, kind, Some(zone), None), most)
            }
            Self::Modifications(id) => {
                let recent = |t: &&Millis| now.since(**t) < DAY_MS;
                let modified = &realm.volumes().get(id)?.modified;
                let count = modified.iter().filter(recent).count();
                (number(count), number(quotas.modifications_per_day))
            }
            Self::Initialization => (
                usage::initialization_rate(realm, now),
                u64::from(quotas.initialization_rate),
            ),
            Self::Copies => (
                number(usage::copies(realm, now).count()),
                number(quotas.copies),
            ),
            Self::Snapshots => (number(realm.snapshots().len()), number(quotas.snapshots)),
            Self::Pending => (
                number(usage::pending_snapshots(realm, None)),
                number(quotas.pending_snapshots?),
            ),
            Self::PendingOf(id) => {
                // A deleted volume gets no more snapshots.
                let kind = &realm.volumes().get(id)?.shape.volume_type;
                (
                    number(usage::pending_snapshots(realm, Some(id))),
                    number(quotas.concurrent_snapshots_of(kind)),
                )
            }
            Self::FastRestores => (
                number(usage::fast_restores(realm)),
                number(quotas.fast_restores),
            ),
        })
    }
}

fn gib(tib: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a limit in whole GiB, and none is negative"
    )]
    let gib = (tib * 1024.0).floor() as u64;
    gib
}

/// Returns the measures that a change of this resource may have raised above a limit. Leaves out
/// measures without a limit, to avoid counting a large state needlessly.
fn concerned(realm: &Realm, quotas: &Quotas, key: &Key, now: Millis) -> Vec<Measure> {
    let mut all = Vec::new();
    match key {
        Key::Volume(id) => {
            let Some(v) = realm.volumes().get(id) else {
                return all;
            };
            let coming = v.modification.as_ref().map(|m| &m.target.volume_type);
            for kind in std::iter::once(&v.shape.volume_type).chain(coming) {
                all.push(Measure::Storage(kind.clone()));
                all.push(Measure::Iops(kind.clone()));
                all.push(Measure::Room(v.zone.clone(), kind.clone()));
            }
            if !v.modified.is_empty() {
                all.push(Measure::Modifications(id.clone()));
            }
            if v.initialized_percent(now) < 100 {
                if v.initialization_rate.is_some() {
                    all.push(Measure::Initialization);
                }
                if matches!(v.origin, Origin::Volume(_)) {
                    all.push(Measure::Copies);
                }
            }
        }
        Key::Snapshot(id) => {
            if let Some(s) = realm.snapshots().get(id) {
                all.push(Measure::Snapshots);
                if matches!(s.life, Life::Pending { .. }) {
                    all.extend([Measure::Pending, Measure::PendingOf(s.volume.clone())]);
                }
            }
        }
        Key::FastRestore(_) => all.push(Measure::FastRestores),
        Key::Instance(_) | Key::Token(_) => {}
    }
    all.retain(|measure| match measure {
        Measure::Storage(kind) => quotas.storage_tib.contains_key(kind),
        Measure::Iops(kind) => quotas.iops.contains_key(kind),
        Measure::Pending => quotas.pending_snapshots.is_some(),
        Measure::Room(zone, _) => quotas.capacity.iter().any(|c| c.zone == *zone),
        _ => true,
    });
    all
}

/// The amounts that exceeded a limit when the limit was set. The excess is a violation only if it
/// grows.
#[derive(Debug, Default)]
pub(super) struct QuotaExcess(BTreeMap<Measure, u64>);

impl QuotaExcess {
    /// Sets new limits.
    pub(super) fn begin(&mut self, realm: &Realm, quotas: &Quotas, now: Millis) {
        self.0.clear();
        let keys = realm
            .volumes()
            .keys()
            .map(|id| Key::Volume(id.clone()))
            .chain(realm.snapshots().keys().map(|id| Key::Snapshot(id.clone())))
            .chain(std::iter::once(Key::FastRestore(String::new())));
        let concerned: BTreeSet<_> = keys
            .flat_map(|key| concerned(realm, quotas, &key, now))
            .collect();
        for measure in concerned {
            if let Some((used, most)) = measure.taken(realm, quotas, now)
                && used > most
            {
                self.0.insert(measure, used);
            }
        }
    }

    /// Returns descriptions of the limits that this change exceeded.
    pub(super) fn exceeded(
        &mut self,
        realm: &Realm,
        quotas: &Quotas,
        key: &Key,
        now: Millis,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for measure in concerned(realm, quotas, key, now) {
            let Some((used, most)) = measure.taken(realm, quotas, now) else {
                continue;
            };
            if used <= most {
                self.0.remove(&measure);
                continue;
            }
            match self.0.get_mut(&measure) {
                // An excess that has shrunk must not grow again.
                Some(before) if used <= *before => *before = used,
                _ => found.push(format!("{used} {measure}, the limit is {most}")),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::resources::modification::{Modification, State};
    use crate::state::resources::volume::tests::fresh;
    use crate::state::resources::volume::{Initialization, Life, Outcome, Volume};
    use serde_json::json;

    fn volume(n: u32, change: impl FnOnce(&mut Volume)) -> Volume {
        let mut v = fresh(Outcome::Available);
        v.id = format!("vol-{n:08x}");
        v.life = Life::Ready;
        change(&mut v);
        v
    }

    fn under_way(v: &mut Volume, kind: &str) {
        let mut target = v.shape.clone();
        target.size = 9;
        kind.clone_into(&mut target.volume_type);
        v.modification = Some(Modification {
            original: v.shape.clone(),
            target,
            started: Millis(0),
            optimizing_at: Millis(9),
            completed_at: Millis(9),
            fails: false,
            state: State::Modifying,
        });
    }

    fn filling(v: &mut Volume) {
        v.initialization = Some(Initialization {
            kind: "volume-copy".to_owned(),
            from: Millis(0),
            until: Millis(100),
        });
    }

    /// A limit set below the present use permits that use but no growth.
    #[test]
    fn exceeded_limits_are_reported_unless_preexisting() {
        type Change = fn(&mut Volume);
        let rows: [(serde_json::Value, Change, &str); 8] = [
            (
                json!({"storage_tib": {"gp3": 0.001}}),
                |_| {},
                "2 GiB of gp3, the limit is 1",
            ),
            (
                json!({"iops": {"gp3": 3_000}}),
                |_| {},
                "6000 IOPS of gp3, the limit is 3000",
            ),
            (
                json!({"capacity": [{"zone": "us-east-1a", "gib": 1}]}),
                |_| {},
                "2 GiB of gp3 in us-east-1a, the limit is 1",
            ),
            (
                json!({"storage_tib": {"io2": 0.01}}),
                |v| under_way(v, "io2"),
                "18 GiB of io2, the limit is 10",
            ),
            (
                json!({"modifications_per_day": 1}),
                |v| v.modified = vec![Millis(0); 2],
                "2 modifications of vol-00000001 in 24 hours, the limit is 1",
            ),
            (
                json!({"initialization_rate": 300}),
                |v| {
                    filling(v);
                    v.initialization_rate = Some(200);
                },
                "400 MiB/s of initialization, the limit is 300",
            ),
            (
                json!({"copies": 1}),
                |v| {
                    filling(v);
                    v.origin = Origin::Volume("vol-1".to_owned());
                },
                "2 copies under way, the limit is 1",
            ),
            (json!({}), |_| {}, ""),
        ];
        for (quotas, change, wanted) in rows {
            let quotas = Quotas::default().changed(quotas).expect("quotas");
            let mut realm = Realm::new("111122223333", "us-east-1", Vec::new());
            realm.put_volume(volume(0, change));
            realm.put_volume(volume(1, change));
            let key = Key::Volume("vol-00000001".to_owned());
            let mut limits = QuotaExcess::default();
            let found = limits.exceeded(&realm, &quotas, &key, Millis(1));
            assert_eq!(found.first().map_or("", String::as_str), wanted);
            // An excess from before the limit may stay but must not grow.
            limits.begin(&realm, &quotas, Millis(1));
            assert_eq!(limits.exceeded(&realm, &quotas, &key, Millis(1)), [""; 0]);
            realm.put_volume(volume(2, change));
            let key = Key::Volume("vol-00000002".to_owned());
            let more = limits.exceeded(&realm, &quotas, &key, Millis(1));
            assert_eq!(more.is_empty(), wanted.is_empty(), "{wanted}: {more:?}");
        }
    }
}
