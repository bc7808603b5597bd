//! Notifications of new device nodes, so that a disk that appears late is found at once.
//!
//! A notification only wakes the waiting thread. It carries no facts; each time, the thread looks
//! for the disk anew.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::time::Duration;

/// Longest wait before the disk is looked for again. A notification can be missing because another
/// waiter consumed it or because the kernel gives none.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A watch on the directory of device nodes, which all waiters share.
#[derive(Debug)]
pub(super) struct Arrivals {
    watch: Option<OwnedFd>,
}

impl Arrivals {
    /// Watches a directory. When the machine has no watch left, waiting takes longer but works.
    pub(super) fn of(directory: &str) -> Self {
        let watch = || {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            // A node is created first and given to its group afterwards.
            let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ATTRIB;
            inotify::add_watch(&watch, directory, events)?;
            Ok::<_, rustix::io::Errno>(watch)
        };
        Self { watch: watch().ok() }
    }

    /// Discards the notifications that have arrived until now.
    pub(super) fn discard(&self) {
        let Some(watch) = &self.watch else { return };
        let mut buffer = [0; 4096];
        while rustix::io::read(watch, &mut buffer).is_ok_and(|length| length > 0) {}
    }

    /// Waits for a notification, for [`RETRY_INTERVAL`] or for `timeout`, whichever ends first.
    pub(super) fn wait(&self, timeout: Duration) {
        let timeout = timeout.min(RETRY_INTERVAL);
        let Some(watch) = &self.watch else {
            return std::thread::sleep(timeout);
        };
        let timespec = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&timespec)) {
            Ok(0) => {}
            Ok(_) => self.discard(),
            Err(_) => std::thread::sleep(timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn has_notification(arrivals: &Arrivals) -> bool {
        let watch = arrivals.watch.as_ref().expect("a watch");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&now)).expect("poll") > 0
    }

    /// A node is created first and gets its group later; each of the two changes wakes a waiter.
    #[test]
    fn device_node_creation_and_chmod_notify_once() {
        let directory = tempfile::tempdir().expect("tempdir");
        let arrivals = Arrivals::of(directory.path().to_str().expect("utf-8"));
        assert!(!has_notification(&arrivals));
        let node = directory.path().join("nvme1n1");
        fs::write(&node, "").expect("write");
        assert!(has_notification(&arrivals));
        arrivals.wait(RETRY_INTERVAL);
        assert!(!has_notification(&arrivals));
        fs::set_permissions(&node, fs::Permissions::from_mode(0o660)).expect("chmod");
        assert!(has_notification(&arrivals));
        arrivals.discard();
        assert!(!has_notification(&arrivals));
        // The removal of a node is no arrival.
        fs::remove_file(&node).expect("remove");
        arrivals.discard();
        arrivals.wait(Duration::from_millis(1));
    }

    #[test]
    fn wait_without_watch_still_returns() {
        let arrivals = Arrivals::of("/no/such/directory");
        assert!(arrivals.watch.is_none());
        arrivals.discard();
        arrivals.wait(Duration::from_millis(1));
    }
}
