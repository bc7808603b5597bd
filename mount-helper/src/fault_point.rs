//! Named steps at which a test can hold the process, to kill it there, or to let it go on by SIGUSR1. Compiled only with the feature `fault-points`,
//! which no release is built with; without it every call is empty.

/// The process has come to this step.
#[cfg(not(feature = "fault-points"))]
pub fn reached(_name: &str) {}

#[cfg(feature = "fault-points")]
pub use armed::{arm, reached};

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    static GO_ON: AtomicBool = AtomicBool::new(false);
    static PASSED: AtomicBool = AtomicBool::new(false);
    static HELD_AT: OnceLock<String> = OnceLock::new();

    /// Hold every process of the tree that comes to this step.
    pub fn arm(name: String) {
        let _ = HELD_AT.set(name);
        crate::sys::on_user_signal(|| GO_ON.store(true, Ordering::Relaxed));
    }

    /// The process has come to this step.
    pub fn reached(name: &str) {
        let armed = HELD_AT.get().is_some_and(|held| held == name);
        // A process that was let go on is not held a second time.
        if armed && !PASSED.load(Ordering::Relaxed) {
            crate::journal::warn("fault-point", &[("name", name)]);
            while !GO_ON.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
            PASSED.store(true, Ordering::Relaxed);
        }
    }
}
