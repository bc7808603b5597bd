//! Confines a process to its profile in the policy, irreversibly; a process that cannot be confined
//! does not start.
//!
//! A `main` first calls [`start::clean`], reads its configuration, opens the files that it needs,
//! and then:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use ebs_csi_confine::{Entering, Places};
//! use ebs_csi_policy::profile;
//!
//! # fn main() -> Result<(), ebs_csi_confine::Fault> {
//! let directory = Path::new("/run/csi");
//! let places = Places::new().with_directory("socket-directory", "--endpoint", directory)?;
//! let enforced = Entering::begin(profile::NODE_AGENT)?
//!     .identity()?
//!     .files(&places)?
//!     .calls()?;
//! // Log `enforced`, then start threads and the runtime.
//! # Ok(())
//! # }
//! ```
//!
//! The needs of each step fix the order: limits and the bounding set need the privilege that the
//! change of user gives up; Landlock needs `no_new_privs`; the filter comes last because it forbids
//! the calls of all other steps. Every step fails closed: a [`Fault`] is the end of the process,
//! with status [`Fault::exit_status`].
//!
//! All steps except the filter bind only the calling thread and its children, so a process confines
//! itself before it starts its first thread. A process whose thread pool must exist before the
//! filter uses [`Entering::calls_of_all_threads`].

#![deny(unsafe_code)]

mod call_number;
mod enforced;
mod fault;
mod files;
mod identity;
mod places;
pub mod start;
mod sys;
mod syscall_filter;
mod thread_start;
pub mod tool;

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use ebs_csi_policy::profile::{Choice, Profile};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;

pub use enforced::{Enforced, LandlockState};
pub use fault::Fault;
use identity::Taken;
pub use identity::{Raised, raise};
pub use places::{Places, check_held};
pub use sys::landlock_abi;
pub use thread_start::ThreadStarts;

/// A process that is entering its profile. Each step is irreversible.
#[derive(Debug)]
pub struct Entering {
    profile: &'static Profile,
    // For the look at the end: the confined process may not be able to open it.
    status: File,
    landlock: LandlockState,
    places: Vec<String>,
    taken: Taken,
    allow_missing_landlock: bool,
    choice: Option<&'static Choice>,
}

/// Takes all steps, for a process that has one thread.
pub fn enter(profile: &'static Profile, places: &Places) -> Result<Enforced, Fault> {
    Entering::begin(profile)?.identity()?.files(places)?.calls()
}

/// Returns the system call filters that bind a process with this profile, as the kernel shows them
/// to ptrace(2). `process` is the number of the process in its own namespace.
pub fn filters(
    profile: &Profile,
    choice: Option<&Choice>,
    process: rustix::process::Pid,
) -> Result<Vec<Vec<u8>>, Fault> {
    let programs = syscall_filter::of_profile(profile, choice, process)?;
    Ok(programs.iter().map(|program| syscall_filter::bytes(program)).collect())
}

impl Entering {
    /// Reads the state of the process, without changing it. Fails with [`Fault::ManyThreads`] when
    /// there is a second thread, which would keep the rights that this thread gives up.
    pub fn begin(profile: &'static Profile) -> Result<Self, Fault> {
        let threads = enforced::read(&open_status()?)?.threads;
        if threads != 1 {
            return Err(Fault::ManyThreads(threads));
        }
        Ok(Self {
            profile,
            status: open_status()?,
            landlock: LandlockState::NotAsked,
            places: Vec::new(),
            taken: Taken::default(),
            allow_missing_landlock: false,
            choice: None,
        })
    }

    /// Allows a start below the profile's Landlock floor. [`Enforced`] reports what is missing.
    #[must_use]
    pub fn allow_missing_landlock(mut self, allow: bool) -> Self {
        self.allow_missing_landlock = allow;
        self
    }

    /// Adds the system calls of a choice of the profile, where one is named.
    pub fn choose(mut self, name: Option<&'static str>) -> Result<Self, Fault> {
        let choices = self.profile.choices;
        self.choice = match name {
            None => None,
            Some(name) => match choices.iter().find(|choice| choice.name == name) {
                Some(choice) => Some(choice),
                None => return Err(Fault::UnknownChoice(name)),
            },
        };
        Ok(self)
    }

    /// Sets limits, capability sets, user and groups, and `no_new_privs`.
    pub fn identity(mut self) -> Result<Self, Fault> {
        let before = enforced::read(&open_status()?)?;
        identity::set_limits(self.profile.limits)?;
        self.taken = identity::apply(self.profile, &before)?;
        Ok(self)
    }

    /// Applies the Landlock rules.
    pub fn files(mut self, places: &Places) -> Result<Self, Fault> {
        self.landlock =
            files::restrict(&self.profile.landlock, places, self.allow_missing_landlock)?;
        self.places = places.of_settings().to_vec();
        Ok(self)
    }

    /// Makes the descriptors that are open now the ones that the process keeps, where its profile
    /// restricts writes to them: none below the profile's number stays free for what is opened
    /// later. Fails with [`Fault::Descriptor`] when one of `written` is not among them. A process
    /// whose threads start before the filter calls this before it starts them.
    pub fn keep_descriptors(mut self, written: &[BorrowedFd<'_>]) -> Result<Self, Fault> {
        let failed = |error: rustix::io::Errno| Fault::Descriptors(error.into());
        let kept = i32::try_from(self.profile.kept_descriptors).unwrap_or(i32::MAX);
        if kept == 0 {
            return Ok(self);
        }
        if let Some(beyond) = written.iter().map(AsRawFd::as_raw_fd).find(|one| *one >= kept) {
            return Err(Fault::Descriptor(beyond));
        }
        // This one is closed at the end.
        self.status = fcntl_dupfd_cloexec(&self.status, kept).map_err(failed)?.into();
        let filler = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?;
        loop {
            let copy = fcntl_dupfd_cloexec(&filler, 0).map_err(failed)?;
            if copy.as_raw_fd() >= kept {
                break;
            }
            start::leave_open(copy);
        }
        if filler.as_raw_fd() < kept {
            start::leave_open(filler);
        }
        Ok(self)
    }

    /// Installs the system call filter for the calling thread and everything that it starts.
    pub fn calls(self) -> Result<Enforced, Fault> {
        self.filter(syscall_filter::Threads::This)
    }

    /// Installs the system call filter for every thread of the process; [`ThreadStarts`] waits
    /// until they have begun.
    pub fn calls_of_all_threads(self) -> Result<Enforced, Fault> {
        self.filter(syscall_filter::Threads::All)
    }

    fn filter(self, threads: syscall_filter::Threads) -> Result<Enforced, Fault> {
        let this = self.keep_descriptors(&[])?;
        let own = rustix::process::getpid();
        let programs = syscall_filter::of_profile(this.profile, this.choice, own)?;
        // The making of filters takes more memory than the process needs afterwards.
        sys::return_free_memory();
        syscall_filter::apply(&programs, threads)?;
        this.observe()
    }

    /// Reads back what the kernel enforces now.
    fn observe(self) -> Result<Enforced, Fault> {
        let status = enforced::read(&self.status)?;
        let choice = self.choice.map(|choice| choice.name);
        let enforced = enforced::confirm(self.profile, status, self.landlock, self.taken, choice)?;
        Ok(Enforced { places: self.places, ..enforced })
    }
}

fn open_status() -> Result<File, Fault> {
    File::open(Path::new("/proc/self/status")).map_err(Fault::Status)
}
