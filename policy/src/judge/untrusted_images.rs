//! File systems that this driver did not make: what is required before they are mounted, and what
//! their mounts may do.
//!
//! A file system counts as ours in three cases: EC2 reports that its volume began blank, so that
//! nothing but mounts of this volume has written to it; its volume is a copy of a snapshot or
//! volume of this driver and cluster; or it carries the identifier that only a format of this very
//! volume writes. A copy of anything else was made elsewhere, for example from a shared snapshot or
//! a volume of another cluster. The origin of every other file system is untold: the Go driver
//! attached the volume, or its source is gone.

/// How a file system that is not ours is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UntrustedImages {
    /// Refused.
    Deny,
    /// Checked in full before the mount, once for each time that the disk is attached, when it is
    /// known to have been made elsewhere.
    #[default]
    Check,
    /// Treated as if it were ours.
    Allow,
}

impl UntrustedImages {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Deny, Self::Check, Self::Allow];

    /// Returns the value's name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Check => "check",
            Self::Allow => "allow",
        }
    }

    /// Parses the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

/// `MOUNT_ATTR_NOSUID` (2) and `MOUNT_ATTR_NODEV` (4) of mount_setattr(2).
const NOSUID_NODEV: u64 = 6;

/// Which mounts ignore set-user-id bits and device nodes, whatever the flags of a request say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodevNosuid {
    /// None: the flags of the request decide.
    #[default]
    Off,
    /// Mounts of file systems that are not ours.
    Untrusted,
    /// All.
    On,
}

impl NodevNosuid {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Off, Self::Untrusted, Self::On];

    /// Returns the value's name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Untrusted => "untrusted",
            Self::On => "on",
        }
    }

    /// Parses the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Returns the `MOUNT_ATTR_*` bits that are set when a volume is staged.
    #[must_use]
    pub const fn staged(self, ours: bool) -> u64 {
        match (self, ours) {
            (Self::Off, _) | (Self::Untrusted, true) => 0,
            (Self::Untrusted, false) | (Self::On, _) => NOSUID_NODEV,
        }
    }

    /// Returns the `MOUNT_ATTR_*` bits that no publish may clear. A publish copies the staged
    /// mount, including its attributes.
    #[must_use]
    pub const fn kept(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Untrusted | Self::On => NOSUID_NODEV,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_names_on_command_line() {
        let images = UntrustedImages::ALL.map(UntrustedImages::as_str);
        assert_eq!(images, ["deny", "check", "allow"]);
        for value in UntrustedImages::ALL {
            assert_eq!(UntrustedImages::parse(value.as_str()), Some(value));
        }
        assert_eq!(UntrustedImages::parse(""), None);
        let attributes = NodevNosuid::ALL.map(NodevNosuid::as_str);
        assert_eq!(attributes, ["off", "untrusted", "on"]);
        for value in NodevNosuid::ALL {
            assert_eq!(NodevNosuid::parse(value.as_str()), Some(value));
        }
        assert_eq!(NodevNosuid::parse(""), None);
    }

    #[test]
    fn attributes_follow_mode_and_origin() {
        for (mode, ours, theirs, kept) in [
            (NodevNosuid::Off, 0, 0, 0),
            (NodevNosuid::Untrusted, 0, 6, 6),
            (NodevNosuid::On, 6, 6, 6),
        ] {
            let found = (mode.staged(true), mode.staged(false), mode.kept());
            assert_eq!(found, (ours, theirs, kept), "{mode:?}");
        }
    }
}
