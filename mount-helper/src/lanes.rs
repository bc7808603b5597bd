//! Where operations are at work. Changes of one volume come one after the other; so that those of
//! two volumes do not meet at one place, an operation has its place to itself, with what is above
//! and beneath it.
use ebs_csi_wire::{KubeletPath, Operation};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The places that are taken.
#[derive(Debug, Default)]
pub struct Lanes(Mutex<Vec<KubeletPath>>);

/// A place that is an operation's own until this is dropped.
#[derive(Debug)]
pub struct Lane<'l> {
    lanes: &'l Lanes,
    place: Option<KubeletPath>,
}

impl Lanes {
    /// Take the place that an operation changes; none for an operation that changes none. The error
    /// says that another volume's operation has it: no two volumes have a place in common, so that
    /// nobody who is honest waits for it.
    pub fn enter(&self, operation: &Operation) -> Result<Lane<'_>, Taken> {
        let place = changed(operation).cloned();
        if let Some(place) = &place {
            let mut taken = self.taken();
            if taken.iter().any(|other| meet(other, place)) {
                return Err(Taken);
            }
            taken.push(place.clone());
        }
        Ok(Lane { lanes: self, place })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<KubeletPath>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.lanes.taken().retain(|other| other != place);
        }
    }
}

/// Another operation is at work there.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken;

/// Where an operation attaches or takes away.
fn changed(operation: &Operation) -> Option<&KubeletPath> {
    match operation {
        Operation::Stage(asked) => Some(&asked.staging),
        Operation::Unstage(asked) => Some(&asked.staging),
        Operation::PublishFilesystem(asked) => Some(&asked.target),
        Operation::PublishBlock(asked) => Some(&asked.target),
        Operation::Unpublish(asked) => Some(&asked.target),
        Operation::Hello(_)
        | Operation::Expand(_)
        | Operation::Stats(_)
        | Operation::NvmeStatistics(_)
        | Operation::Inspect(_) => None,
    }
}

/// One is the other, or above it.
fn meet(one: &KubeletPath, other: &KubeletPath) -> bool {
    one == other || one.strip_root(other).is_some() || other.strip_root(one).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_wire::{Stats, Unpublish, VolumeId};

    fn volume() -> VolumeId {
        VolumeId::parse("vol-00000000000000001").expect("id")
    }

    fn unpublish(target: &str) -> Operation {
        Operation::Unpublish(Unpublish {
            volume: volume(),
            target: KubeletPath::parse(target).expect("path"),
        })
    }

    #[test]
    fn a_place_is_one_operations_with_all_above_and_beneath() {
        let lanes = Lanes::default();
        let lane = lanes.enter(&unpublish("/k/pods/a")).expect("free");
        for place in ["/k/pods/a", "/k/pods/a/b", "/k/pods"] {
            assert_eq!(lanes.enter(&unpublish(place)).err(), Some(Taken), "{place}");
        }
        let beside = lanes.enter(&unpublish("/k/pods/ab")).expect("free");
        drop(lane);
        let again = lanes.enter(&unpublish("/k/pods/a/b")).expect("free again");
        drop((beside, again));
        assert!(lanes.taken().is_empty());
    }

    #[test]
    fn who_only_looks_takes_no_place() {
        let lanes = Lanes::default();
        let _lane = lanes.enter(&unpublish("/k/pods/a")).expect("free");
        let stats = Operation::Stats(Stats {
            volume: volume(),
            path: KubeletPath::parse("/k/pods/a").expect("path"),
        });
        assert!(lanes.enter(&stats).is_ok());
    }
}
