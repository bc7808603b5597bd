//! File systems that this driver did not make: what is asked of them before they are mounted, and what their mounts may do.
//!
//! A file system counts as ours when EC2 says that its volume began blank, so that nothing but
//! mounts of this volume has written to it, when its volume is a copy of a snapshot or volume of
//! this driver and cluster, or when it carries the identifier that only a format of this very
//! volume writes. A copy of anything else was made elsewhere: snapshots that somebody shared,
//! volumes of another cluster. Of the rest nobody said where it was made: the Go driver attached
//! it, or its source is gone.

/// What is done with a file system that is not ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UntrustedImages {
    /// Refused.
    Deny,
    /// Checked in full by its checker, once for each time that the disk is attached, before it is
    /// mounted, when it is known to have been made elsewhere.
    #[default]
    Check,
    /// Treated as if it were ours.
    Allow,
}

impl UntrustedImages {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Deny, Self::Check, Self::Allow];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Check => "check",
            Self::Allow => "allow",
        }
    }

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

/// `MOUNT_ATTR_NOSUID` and `MOUNT_ATTR_NODEV` of mount_setattr(2).
const NOSUID_NODEV: u64 = 2 | 4;

/// Which mounts ignore set-user-id bits and device nodes, whatever the flags of a request say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodevNosuid {
    /// None: the flags of the request decide.
    #[default]
    Off,
    /// Those of file systems that are not ours.
    Untrusted,
    /// All.
    On,
}

impl NodevNosuid {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Off, Self::Untrusted, Self::On];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Untrusted => "untrusted",
            Self::On => "on",
        }
    }

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// `MOUNT_ATTR_*` bits that are set where a volume is staged.
    #[must_use]
    pub const fn staged(self, ours: bool) -> u64 {
        match (self, ours) {
            (Self::Off, _) | (Self::Untrusted, true) => 0,
            (Self::Untrusted, false) | (Self::On, _) => NOSUID_NODEV,
        }
    }

    /// `MOUNT_ATTR_*` bits that no publish may clear. A publish copies the staged mount, attributes included.
    #[must_use]
    pub const fn kept(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Untrusted | Self::On => NOSUID_NODEV,
        }
    }
}
