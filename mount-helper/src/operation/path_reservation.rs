//! Reservations of the places (paths) that operations change. Changes of one volume run one after
//! the other; so that operations of two volumes never meet at one place, an operation reserves its
//! place together with everything above and beneath it.
use ebs_csi_wire::{KubeletPath, Operation};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The places that are reserved.
#[derive(Debug, Default)]
pub(crate) struct PathReservations(Mutex<Vec<KubeletPath>>);

/// A place that is reserved for one operation until this is dropped.
#[derive(Debug)]
pub(crate) struct PathReservation<'l> {
    reservations: &'l PathReservations,
    place: Option<KubeletPath>,
}

impl PathReservations {
    /// Reserves the place that an operation changes; reserves nothing for an operation that changes
    /// none. Fails when the operation of another volume has reserved the place: two volumes never
    /// share a place, so no honest caller meets this error.
    pub(crate) fn enter(&self, operation: &Operation) -> Result<PathReservation<'_>, PathReserved> {
        let place = changed(operation).cloned();
        if let Some(place) = &place {
            let mut taken = self.taken();
            if taken.iter().any(|other| meet(other, place)) {
                return Err(PathReserved);
            }
            taken.push(place.clone());
        }
        Ok(PathReservation {
            reservations: self,
            place,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<KubeletPath>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PathReservation<'_> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.reservations.taken().retain(|other| other != place);
        }
    }
}

/// Another operation has reserved the place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathReserved;

/// Returns the place at which an operation attaches or removes something.
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

/// Returns whether the paths are equal or one is above the other.
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
    fn path_lane_excludes_parents_and_children_until_dropped() {
        let reservations = PathReservations::default();
        let reservation = reservations.enter(&unpublish("/k/pods/a")).expect("free");
        for place in ["/k/pods/a", "/k/pods/a/b", "/k/pods"] {
            assert_eq!(
                reservations.enter(&unpublish(place)).err(),
                Some(PathReserved),
                "{place}"
            );
        }
        let beside = reservations.enter(&unpublish("/k/pods/ab")).expect("free");
        drop(reservation);
        let again = reservations
            .enter(&unpublish("/k/pods/a/b"))
            .expect("free again");
        drop((beside, again));
        assert!(reservations.taken().is_empty());
    }

    #[test]
    fn stats_is_allowed_on_reserved_path() {
        let reservations = PathReservations::default();
        let _reservation = reservations.enter(&unpublish("/k/pods/a")).expect("free");
        let stats = Operation::Stats(Stats {
            volume: volume(),
            path: KubeletPath::parse("/k/pods/a").expect("path"),
        });
        assert!(reservations.enter(&stats).is_ok());
    }
}
