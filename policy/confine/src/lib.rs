//! The irreversible step: a process becomes what its profile in the policy says, or it does not start.
//!
//! A `main` calls [`start::close_strays`] and [`start::keep_environment`] first, reads its configuration, opens what it must
//! open, and then:
//!
//! ```no_run
//! use ebs_csi_confine::{Entering, Places};
//! use ebs_csi_policy::profile;
//!
//! # fn main() -> Result<(), ebs_csi_confine::Fault> {
//! let places = Places::new().with("socket-directory", "/run/csi")?;
//! let enforced = Entering::begin(profile::NODE_AGENT)?
//!     .identity()?
//!     .files(&places)?
//!     .calls()?;
//! // Log `enforced`, then start threads and the runtime.
//! # Ok(())
//! # }
//! ```
//!
//! The order is fixed by what each step needs: limits and the bounding set need the privilege that the change of user
//! gives up; Landlock needs `no_new_privs`; the filter comes last because it forbids the calls of all the others.
//! Every step fails closed: a [`Fault`] is the end of the process, with status [`Fault::EXIT`].
//!
//! All but the filter bind the calling thread and its children only, so a process confines itself before its first
//! thread. A process whose pool must exist before the filter uses [`Entering::calls_of_all_threads`].

#![deny(unsafe_code)]

mod answer;
mod call_number;
mod enforced;
mod fault;
mod files;
mod identity;
mod limits;
mod raised;
pub mod start;
mod sys;
pub mod tool;

use std::fs::File;
use std::path::Path;

use ebs_csi_policy::profile::Profile;

pub use enforced::{Enforced, LandlockState};
pub use fault::Fault;
pub use files::Places;
pub use raised::{Raised, raise};

/// The kernel's Landlock ABI; 0 where it offers none.
#[must_use]
pub fn landlock_abi() -> u8 {
    sys::landlock_abi()
}

/// A process on its way into its profile. Each step is irreversible.
#[derive(Debug)]
pub struct Entering {
    profile: &'static Profile,
    // Opened first: the process may not be able to open it once it is confined.
    status: File,
    landlock: LandlockState,
    missing: Vec<&'static str>,
    allow_missing_landlock: bool,
}

/// All steps at once, for a process that has one thread.
///
/// # Errors
/// [`Fault`]: the process must end.
pub fn enter(profile: &'static Profile, places: &Places) -> Result<Enforced, Fault> {
    Entering::begin(profile)?.identity()?.files(places)?.calls()
}

impl Entering {
    /// Nothing has happened yet but a look at the process.
    ///
    /// # Errors
    /// [`Fault::ManyThreads`] when there is a second thread, which would keep what this one gives up.
    pub fn begin(profile: &'static Profile) -> Result<Self, Fault> {
        let status = File::open(Path::new("/proc/self/status")).map_err(Fault::Status)?;
        let entering = Self {
            profile,
            status,
            landlock: LandlockState::NotAsked,
            missing: Vec::new(),
            allow_missing_landlock: false,
        };
        let threads = entering.read_status()?.threads;
        if threads != 1 {
            return Err(Fault::ManyThreads(threads));
        }
        Ok(entering)
    }

    /// Go on below the profile's Landlock floor. What was missed stands in [`Enforced`].
    #[must_use]
    pub fn allow_missing_landlock(mut self, allow: bool) -> Self {
        self.allow_missing_landlock = allow;
        self
    }

    /// Limits, capability sets, user and groups, `no_new_privs`.
    ///
    /// # Errors
    /// [`Fault`]: the process must end.
    pub fn identity(mut self) -> Result<Self, Fault> {
        let before = self.read_status()?;
        limits::apply(self.profile.limits)?;
        self.missing = identity::become_it(self.profile, &before)?;
        Ok(self)
    }

    /// Landlock.
    ///
    /// # Errors
    /// [`Fault`]: the process must end.
    pub fn files(mut self, places: &Places) -> Result<Self, Fault> {
        self.landlock =
            files::restrict(&self.profile.landlock, places, self.allow_missing_landlock)?;
        Ok(self)
    }

    /// The system call filter, for the calling thread and all that it starts.
    ///
    /// # Errors
    /// [`Fault`]: the process must end.
    pub fn calls(self) -> Result<Enforced, Fault> {
        self.filter(answer::Threads::This)
    }

    /// The system call filter, for every thread of the process.
    ///
    /// # Errors
    /// [`Fault`]: the process must end.
    pub fn calls_of_all_threads(self) -> Result<Enforced, Fault> {
        self.filter(answer::Threads::All)
    }

    fn filter(self, threads: answer::Threads) -> Result<Enforced, Fault> {
        // The list comes last: it forbids to install another.
        let itself = answer::itself(self.profile.calls, rustix::process::getpid())?;
        answer::apply(itself.as_slice(), threads)?;
        answer::apply(&answer::programs(self.profile.calls)?, threads)?;
        self.observe()
    }

    /// What the kernel says now.
    fn observe(self) -> Result<Enforced, Fault> {
        let status = self.read_status()?;
        enforced::confirm(self.profile, status, self.landlock, self.missing)
    }

    fn read_status(&self) -> Result<ebs_csi_policy::status::Status, Fault> {
        enforced::read(&self.status)
    }
}
