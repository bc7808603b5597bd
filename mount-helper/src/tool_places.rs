//! Places for tools. Each tool may take memory by the size of its disk, so that only a few run at a
//! time.
//!
//! An operation that wants a tool and finds no place ends there, without a worker, and begins anew
//! when one is free. One that has a place keeps it until it ends: it never waits in between.
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Operations that have a tool run at once.
pub const TOOLS: usize = 4;

/// The places, shared by the table of operations, which hands them on, and by the way to the tools.
#[derive(Debug)]
pub struct ToolPlaces(Mutex<Places>);

#[derive(Debug)]
struct Places {
    free: usize,
    /// Threads whose operation has one: an operation runs on one thread from its beginning to its
    /// end.
    held_by: Vec<ThreadId>,
}

impl Default for ToolPlaces {
    fn default() -> Self {
        Self(Mutex::new(Places {
            free: TOOLS,
            held_by: Vec::new(),
        }))
    }
}

impl ToolPlaces {
    /// Take a place for the operation on this thread, until it ends; true when it has one.
    pub fn take(&self) -> bool {
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

    /// The operation on this thread would be given a place now.
    pub fn at_hand(&self) -> bool {
        let places = self.lock();
        places.free > 0 || places.held_by.contains(&thread::current().id())
    }

    /// Take a place for an operation that is on no thread yet; true when there was one.
    pub fn reserve(&self) -> bool {
        let mut places = self.lock();
        let left = places.free.checked_sub(1);
        places.free = left.unwrap_or(0);
        left.is_some()
    }

    /// The operation that begins on this thread has a reserved place.
    pub fn adopt(&self) {
        self.lock().held_by.push(thread::current().id());
    }

    /// The operation on this thread has ended; true when it had a place, which is reserved from
    /// then on.
    pub fn leave(&self) -> bool {
        let mut places = self.lock();
        let this = thread::current().id();
        let held = places.held_by.iter().position(|thread| *thread == this);
        held.map(|index| places.held_by.swap_remove(index))
            .is_some()
    }

    /// Nobody wants a reserved place.
    pub fn give_back(&self) {
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
        assert!(places.take() && places.at_hand());
        thread::scope(|scope| {
            let other = scope.spawn(|| places.take() || places.at_hand() || places.leave());
            assert!(!other.join().expect("join"));
        });
        assert!(places.leave());
        assert!(!places.leave());
        // It was kept for who comes next.
        assert!(!places.take());
        places.adopt();
        assert!(places.take() && places.leave());
        places.give_back();
        assert!(places.reserve());
    }
}
