//! Reservations of the places (paths) that operations change. Changes of one volume run one after
//! the other; so that operations of two volumes never meet at one place, an operation reserves its
//! place together with everything above and beneath it.
use ebs_csi_wire::KubeletPath;
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
    /// Reserves the place that an operation changes, if it changes one. Returns None when the
    /// operation of another volume has reserved the place: two volumes never share a place, so no
    /// honest caller meets this.
    pub(crate) fn enter(&self, place: Option<&KubeletPath>) -> Option<PathReservation<'_>> {
        let place = place.cloned();
        if let Some(place) = &place {
            let mut taken = self.taken();
            if taken.iter().any(|other| meet(other, place)) {
                return None;
            }
            taken.push(place.clone());
        }
        Some(PathReservation { reservations: self, place })
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

/// Returns whether the paths are equal or one is above the other.
fn meet(one: &KubeletPath, other: &KubeletPath) -> bool {
    one == other || one.strip_root(other).is_some() || other.strip_root(one).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> KubeletPath {
        KubeletPath::parse(path).expect("path")
    }

    #[test]
    fn path_lane_excludes_parents_and_children_until_dropped() {
        let reservations = PathReservations::default();
        let enter = |place: &str| reservations.enter(Some(&path(place)));
        let reservation = enter("/k/pods/a").expect("free");
        for place in ["/k/pods/a", "/k/pods/a/b", "/k/pods"] {
            assert!(enter(place).is_none(), "{place}");
        }
        let beside = enter("/k/pods/ab").expect("free");
        drop(reservation);
        let again = enter("/k/pods/a/b").expect("free again");
        drop((beside, again));
        assert!(reservations.taken().is_empty());
    }

    #[test]
    fn operation_without_place_needs_no_reservation() {
        let reservations = PathReservations::default();
        let _reservation = reservations.enter(Some(&path("/k/pods/a"))).expect("free");
        assert!(reservations.enter(None).is_some());
    }
}
