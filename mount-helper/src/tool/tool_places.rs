//! Places for tools. A tool may use memory in proportion to the size of its disk, so only a few run
//! at a time. Formats have places of their own: a check may sleep for minutes, as `e2fsck` does on
//! a file system with `mmp` that was not unmounted.
//!
//! An operation that needs a tool while no place is free stops there and gives up its worker, and
//! is started again when a place is free. An operation that has a place keeps it until the
//! operation ends, and never waits in between.
use ebs_csi_policy::tool::Purpose;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Largest number of operations that have a place of one kind.
pub(crate) const PLACES: usize = 4;
/// Largest number of operations that have a tool at one time.
pub(crate) const TOOLS: usize = PLACES * PlaceKind::ALL.len();

/// The tools for which a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// Those that make a file system.
    Format,
    /// Those that check or grow one.
    Check,
}

impl PlaceKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 2] = [Self::Format, Self::Check];

    /// Returns the kind of place that a tool needs.
    pub(crate) const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Format => Self::Format,
            Purpose::Check | Purpose::Grow => Self::Check,
        }
    }

    /// Returns the place of the kind in an array with one element for each kind.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The places. The table of operations shares them to pass them on, and
/// [`crate::tool::runner_requests`] to take them.
#[derive(Debug)]
pub(crate) struct ToolPlaces(Mutex<Places>);

#[derive(Debug)]
struct Places {
    /// For each kind, the number of free places.
    free: [usize; PlaceKind::ALL.len()],
    /// The threads whose operation has a place: an operation runs on one thread from its beginning
    /// to its end.
    held_by: Vec<(ThreadId, PlaceKind)>,
}

impl Places {
    fn is_held(&self, kind: PlaceKind) -> bool {
        self.held_by.contains(&(thread::current().id(), kind))
    }

    /// Takes a free place for nobody in particular; returns whether there was one.
    fn take(&mut self, kind: PlaceKind) -> bool {
        let free = &mut self.free[kind.index()];
        let left = free.checked_sub(1);
        *free = left.unwrap_or(0);
        left.is_some()
    }
}

impl Default for ToolPlaces {
    fn default() -> Self {
        Self(Mutex::new(Places { free: [PLACES; PlaceKind::ALL.len()], held_by: Vec::new() }))
    }
}

impl ToolPlaces {
    /// Takes a place for the operation on this thread, until the operation ends; returns whether it
    /// has one.
    pub(crate) fn take(&self, kind: PlaceKind) -> bool {
        let mut places = self.lock();
        if places.is_held(kind) {
            return true;
        }
        let taken = places.take(kind);
        if taken {
            places.held_by.push((thread::current().id(), kind));
        }
        taken
    }

    /// Returns whether [`Self::take`] would succeed on this thread now.
    pub(crate) fn is_available(&self, kind: PlaceKind) -> bool {
        let places = self.lock();
        places.free[kind.index()] > 0 || places.is_held(kind)
    }

    /// Takes a place for an operation that is on no thread yet; returns whether there was one.
    pub(crate) fn reserve(&self, kind: PlaceKind) -> bool {
        self.lock().take(kind)
    }

    /// Gives a reserved place to the operation that begins on this thread.
    pub(crate) fn take_reserved(&self, kind: PlaceKind) {
        self.lock().held_by.push((thread::current().id(), kind));
    }

    /// Notes that the operation on this thread has ended. Returns the places that it had, which are
    /// reserved from then on.
    pub(crate) fn end_operation(&self) -> Vec<PlaceKind> {
        let mut places = self.lock();
        let this = thread::current().id();
        let ended = places.held_by.extract_if(.., |(thread, _)| *thread == this);
        ended.map(|(_, kind)| kind).collect()
    }

    /// Frees a reserved place that nobody needs.
    pub(crate) fn give_back(&self, kind: PlaceKind) {
        self.lock().free[kind.index()] += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceKind::{Check, Format};
    use super::*;

    #[test]
    fn an_operation_keeps_its_place_until_it_ends() {
        let places = ToolPlaces::default();
        for _ in 1..PLACES {
            assert!(places.reserve(Check));
        }
        assert!(places.take(Check));
        assert!(!places.reserve(Check));
        assert!(places.take(Check) && places.is_available(Check));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                places.take(Check)
                    || places.is_available(Check)
                    || !places.end_operation().is_empty()
            });
            assert!(!other.join().expect("join"));
        });
        assert_eq!(places.end_operation(), [Check]);
        assert_eq!(places.end_operation(), []);
        // The place stays reserved for the next operation.
        assert!(!places.take(Check));
        places.take_reserved(Check);
        assert!(places.take(Check) && places.end_operation() == [Check]);
        places.give_back(Check);
        assert!(places.reserve(Check));
    }

    #[test]
    fn formats_have_places_when_checks_have_none() {
        let places = ToolPlaces::default();
        while places.reserve(Check) {}
        for _ in 1..PLACES {
            assert!(places.reserve(Format));
        }
        assert!(places.is_available(Format) && places.take(Format));
        assert!(!places.reserve(Format));
        assert_eq!(places.end_operation(), [Format]);
    }
}
