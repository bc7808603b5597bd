//! Places for tools. A tool may use memory in proportion to the size of its disk, so only a few run
//! at a time.
//!
//! An operation that needs a tool while no place is free stops there and gives up its worker, and
//! is started again when a place is free. An operation that has a place keeps it until the
//! operation ends, and never waits in between.
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Largest number of operations that have a tool at one time.
pub(crate) const TOOLS: usize = 4;

/// The places. The table of operations shares them to pass them on, and
/// [`crate::tool::runner_requests`] to take them.
#[derive(Debug)]
pub(crate) struct ToolPlaces(Mutex<Places>);

#[derive(Debug)]
struct Places {
    free: usize,
    /// The threads whose operation has a place: an operation runs on one thread from its beginning
    /// to its end.
    held_by: Vec<ThreadId>,
}

impl Default for ToolPlaces {
    fn default() -> Self {
        Self(Mutex::new(Places { free: TOOLS, held_by: Vec::new() }))
    }
}

impl ToolPlaces {
    /// Takes a place for the operation on this thread, until the operation ends; returns whether it
    /// has one.
    pub(crate) fn take(&self) -> bool {
        let mut places = self.lock();
        let this = thread::current().id();
        if places.held_by.contains(&this) {
            return true;
        }
        let Some(left) = places.free.checked_sub(1) else {
            return false;
        };
        places.free = left;
        places.held_by.push(this);
        true
    }

    /// Returns whether [`Self::take`] would succeed on this thread now.
    pub(crate) fn is_available(&self) -> bool {
        let places = self.lock();
        places.free > 0 || places.held_by.contains(&thread::current().id())
    }

    /// Takes a place for an operation that is on no thread yet; returns whether there was one.
    pub(crate) fn reserve(&self) -> bool {
        let mut places = self.lock();
        let left = places.free.checked_sub(1);
        places.free = left.unwrap_or(0);
        left.is_some()
    }

    /// Gives a reserved place to the operation that begins on this thread.
    pub(crate) fn take_reserved(&self) {
        self.lock().held_by.push(thread::current().id());
    }

    /// Notes that the operation on this thread has ended. Returns whether it had a place, which is
    /// reserved from then on.
    pub(crate) fn end_operation(&self) -> bool {
        let mut places = self.lock();
        let this = thread::current().id();
        let held = places.held_by.iter().position(|thread| *thread == this);
        held.map(|index| places.held_by.swap_remove(index)).is_some()
    }

    /// Frees a reserved place that nobody needs.
    pub(crate) fn give_back(&self) {
        self.lock().free += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_keeps_its_place_until_it_ends() {
        let places = ToolPlaces::default();
        for _ in 1..TOOLS {
            assert!(places.reserve());
        }
        assert!(places.take());
        assert!(!places.reserve());
        assert!(places.take() && places.is_available());
        thread::scope(|scope| {
            let other =
                scope.spawn(|| places.take() || places.is_available() || places.end_operation());
            assert!(!other.join().expect("join"));
        });
        assert!(places.end_operation());
        assert!(!places.end_operation());
        // The place stays reserved for the next operation.
        assert!(!places.take());
        places.take_reserved();
        assert!(places.take() && places.end_operation());
        places.give_back();
        assert!(places.reserve());
    }
}
