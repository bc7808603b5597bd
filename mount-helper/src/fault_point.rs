//! Named steps at which a test can hold the process, to kill it there or to continue it by SIGUSR1.
//! Compiled only with the feature `fault-points`, with which no release is built; without it every
//! call is empty.

#[cfg(not(feature = "fault-points"))]
pub(crate) fn reached(_name: &str) {}

#[cfg(feature = "fault-points")]
pub(crate) use armed::{arm, reached};

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    static CONTINUE: AtomicBool = AtomicBool::new(false);
    static PASSED: AtomicBool = AtomicBool::new(false);
    static HELD_AT: OnceLock<String> = OnceLock::new();

    /// Holds every process of the tree that comes to this step.
    pub(crate) fn arm(name: String) {
        let _ = HELD_AT.set(name);
        crate::sys::on_user_signal(|| CONTINUE.store(true, Ordering::Relaxed));
    }

    /// Holds the process when this step is armed.
    pub(crate) fn reached(name: &str) {
        let armed = HELD_AT.get().is_some_and(|held| held == name);
        // A process that was held and continued is not held a second time.
        if armed && !PASSED.load(Ordering::Relaxed) {
            crate::journal::warn("fault-point", &[("name", name)]);
            while !CONTINUE.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
            PASSED.store(true, Ordering::Relaxed);
        }
    }
}
