//! File systems that this driver did not make: what is required before they are mounted, and what
//! their mounts may do.
//!
//! A file system counts as ours in three cases: EC2 reports that its volume began blank, so that
//! nothing but mounts of this volume has written to it; its volume is a copy of a snapshot or
//! volume of this driver and cluster; or it carries the identifier that only a format of this very
//! volume writes. A copy of anything else was made elsewhere, for example from a shared snapshot or
//! a volume of another cluster. The origin of every other file system is untold: the Go driver
//! attached the volume, or its source is gone.

use crate::named_values;
use crate::setting::default_of;

named_values! {
    /// How a file system that is not ours is treated.
    pub UntrustedImages {
        /// Refused.
        Deny => "deny",
        /// Checked in full before the mount, once for each time that the disk is attached, when it
        /// is known to have been made elsewhere.
        Check => "check",
        /// Treated as if it were ours.
        Allow => "allow",
    }
}

impl Default for UntrustedImages {
    /// Returns the policy's default, and without one the narrowest value.
    fn default() -> Self {
        Self::parse(default_of("mount-helper", "--untrusted-images")).unwrap_or(Self::Deny)
    }
}

/// `MOUNT_ATTR_NOSUID` (2) and `MOUNT_ATTR_NODEV` (4) of mount_setattr(2).
const NOSUID_NODEV: u64 = 6;

named_values! {
    /// Which mounts ignore set-user-id bits and device nodes, whatever the flags of a request say.
    pub NodevNosuid {
        /// None: the flags of the request decide.
        Off => "off",
        /// Mounts of file systems that are not ours.
        Untrusted => "untrusted",
        /// All.
        On => "on",
    }
}

impl Default for NodevNosuid {
    /// Returns the policy's default, and without one the narrowest value.
    fn default() -> Self {
        Self::parse(default_of("mount-helper", "--nodev-nosuid")).unwrap_or(Self::On)
    }
}

impl NodevNosuid {
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
        let parsed = ["deny", "check", "allow", ""].map(UntrustedImages::parse);
        let [deny, check, allow] =
            [UntrustedImages::Deny, UntrustedImages::Check, UntrustedImages::Allow];
        assert_eq!(parsed, [Some(deny), Some(check), Some(allow), None]);
        let parsed = ["off", "untrusted", "on", ""].map(NodevNosuid::parse);
        let [off, untrusted, on] = [NodevNosuid::Off, NodevNosuid::Untrusted, NodevNosuid::On];
        assert_eq!(parsed, [Some(off), Some(untrusted), Some(on), None]);
        assert_eq!((UntrustedImages::default(), NodevNosuid::default()), (check, off));
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
