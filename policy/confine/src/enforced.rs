//! The confinement as the kernel confirms it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::Profile;

use crate::Fault;
use crate::identity::Taken;

/// The rules that are enforced on this process, read back from the kernel. Every `main` logs them.
#[derive(Clone, Debug)]
pub struct Enforced {
    /// The profile's name.
    pub profile: &'static str,
    /// `/proc/self/status` after the last step.
    pub status: Status,
    /// Landlock, which `/proc` does not show.
    pub landlock: LandlockState,
    /// `NAME=PATH` of each file or directory that a setting opened, as the kernel names it.
    pub places: Vec<String>,
    /// The securebits, which `/proc` does not show, either.
    pub secure_bits: u32,
    /// Optional capabilities that the host does not grant.
    pub missing_capabilities: Vec<&'static str>,
    /// Supplementary groups beyond the profile's, which a process that starts unprivileged cannot
    /// drop.
    pub extra_groups: Vec<u32>,
    /// The choice of system calls that was made.
    pub choice: Option<&'static str>,
}

/// How much of Landlock is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandlockState {
    /// The profile's step was not taken.
    NotAsked,
    /// The parent's domain is in force.
    Inherited,
    /// Every rule of the profile is in force.
    Full {
        /// The kernel's ABI.
        abi: u8,
    },
    /// The rules of the profile that the kernel knows are in force.
    Partial {
        /// The kernel's ABI.
        abi: u8,
    },
    /// No rule is in force: the kernel has no Landlock.
    Missing,
}

impl fmt::Display for LandlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked"),
            Self::Inherited => f.write_str("inherited"),
            Self::Full { abi } => write!(f, "full (ABI {abi})"),
            Self::Partial { abi } => write!(f, "partial (ABI {abi})"),
            Self::Missing => f.write_str("missing"),
        }
    }
}

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, status, .. } = self;
        write!(
            f,
            "profile={profile} uid={} gid={} groups={:?} permitted={:#x} effective={:#x} bounding={:#x} \
             no_new_privs={} seccomp_filters={} landlock=\"{}\" securebits={:#x}",
            status.uids[1],
            status.gids[1],
            status.groups,
            status.permitted,
            status.effective,
            status.bounding,
            u8::from(status.no_new_privs),
            status.seccomp_filters.map_or_else(|| "unknown".to_owned(), |count| count.to_string()),
            self.landlock,
            self.secure_bits,
        )?;
        if !self.places.is_empty() {
            write!(f, " places=\"{}\"", self.places.join(" "))?;
        }
        if !self.missing_capabilities.is_empty() {
            write!(f, " not_granted={}", self.missing_capabilities.join(","))?;
        }
        if !self.extra_groups.is_empty() {
            write!(f, " extra_groups={:?}", self.extra_groups)?;
        }
        if let Some(choice) = self.choice {
            write!(f, " chosen={choice}")?;
        }
        Ok(())
    }
}

/// Reads the status through a descriptor from which nothing was read before.
pub(crate) fn read(status: &File) -> Result<Status, Fault> {
    let mut text = Vec::new();
    // Bounded: the kernel's text has about 1.5 kB.
    let length = status.take(1 << 16).read_to_end(&mut text).map_err(Fault::Status)?;
    if length == 0 {
        return Err(Fault::Status(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(Status::parse(&text)?)
}

/// Fails when the kernel's report differs from the profile.
pub(crate) fn confirm(
    profile: &'static Profile,
    status: Status,
    landlock: LandlockState,
    taken: Taken,
    choice: Option<&'static str>,
) -> Result<Enforced, Fault> {
    let deviations = profile.deviations(&status);
    if let Some(first) = deviations.first() {
        return Err(Fault::NotConfirmed(first.to_string()));
    }
    let Taken { missing: missing_capabilities, secure_bits } = taken;
    Ok(Enforced {
        profile: profile.name,
        extra_groups: profile.identity.extra_groups(&status.groups),
        status,
        landlock,
        places: Vec::new(),
        secure_bits,
        missing_capabilities,
        choice,
    })
}
