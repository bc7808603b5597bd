//! Where a live process differs from its profile.

use std::fmt;

use crate::profile::Profile;
use crate::status::Status;

/// One difference between what a profile says and what the kernel says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// What was compared, for example `effective capabilities`.
    pub what: &'static str,
    /// What the profile says.
    pub expected: String,
    /// What the kernel says.
    pub found: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            expected,
            found,
        } = self;
        write!(f, "{what}: expected {expected}, found {found}")
    }
}

impl Profile {
    /// Every difference between this profile and the status of a process. An optional capability may be absent; none
    /// beyond the profile's may be present in any set. A capability that may be raised for a call may be effective
    /// at the moment of the look.
    #[must_use]
    pub fn deviations(&self, status: &Status) -> Vec<Deviation> {
        let mut found = Vec::new();
        let mut expect = |what, expected: String, actual: String, holds: bool| {
            if !holds {
                found.push(Deviation {
                    what,
                    expected,
                    found: actual,
                });
            }
        };
        let identity = &self.identity;
        let user = status.uids[0];
        let uids = status.uids == [identity.uid; 4]
            || (identity.other_unprivileged_uid && user != 0 && status.uids == [user; 4]);
        expect(
            "user",
            identity.uid.to_string(),
            format!("{:?}", status.uids),
            uids,
        );
        let other_user = uids && user != identity.uid;
        expect(
            "group",
            identity.gid.to_string(),
            format!("{:?}", status.gids),
            status.gids == [identity.gid; 4] || other_user,
        );
        expect(
            "supplementary groups",
            format!("{:?}", identity.groups),
            format!("{:?}", status.groups),
            status.groups == identity.groups || other_user,
        );

        let allowed: u64 = self
            .capabilities
            .iter()
            .map(|held| held.capability.bit())
            .sum();
        let needed: u64 = self
            .capabilities
            .iter()
            .filter(|held| !held.optional)
            .map(|held| held.capability.bit())
            .sum();
        let effective: u64 = self
            .capabilities
            .iter()
            .filter(|held| held.effective && !held.optional)
            .map(|held| held.capability.bit())
            .sum();
        let hex = |set: u64| format!("{set:#x}");
        expect(
            "permitted capabilities",
            hex(allowed),
            hex(status.permitted),
            status.permitted & !allowed == 0 && status.permitted & needed == needed,
        );
        expect(
            "effective capabilities",
            hex(effective),
            hex(status.effective),
            status.effective & !allowed == 0 && status.effective & effective == effective,
        );
        // A process that was started without a capability cannot drop its bounding set, and no_new_privs makes it
        // meaningless.
        let powerless = status.permitted == 0 && self.identity.uid != 0;
        expect(
            "bounding set",
            hex(allowed),
            hex(status.bounding),
            status.bounding & !allowed == 0 || powerless,
        );
        expect(
            "inheritable capabilities",
            hex(0),
            hex(status.inheritable),
            status.inheritable == 0,
        );
        expect(
            "ambient capabilities",
            hex(0),
            hex(status.ambient),
            status.ambient == 0,
        );
        expect(
            "no_new_privs",
            "1".to_owned(),
            u8::from(status.no_new_privs).to_string(),
            status.no_new_privs,
        );
        expect(
            "seccomp",
            "2 (filter)".to_owned(),
            status.seccomp.to_string(),
            status.seccomp == 2,
        );
        found
    }
}
