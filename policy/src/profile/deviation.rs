//! Where a live process differs from its profile.

use std::fmt;

use crate::profile::process_status::Status;
use crate::profile::{HeldCapability, Identity, Profile};

/// One difference between a profile and the kernel's report about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// What was compared, for example `effective capabilities`.
    pub what: &'static str,
    /// The profile's value.
    pub expected: String,
    /// The kernel's value.
    pub found: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, expected, found } = self;
        write!(f, "{what}: expected {expected}, found {found}")
    }
}

impl Identity {
    /// Returns those of a process's supplementary groups that are neither among the identity's
    /// groups nor its primary group.
    #[must_use]
    pub fn extra_groups(&self, groups: &[u32]) -> Vec<u32> {
        let known = |group: &u32| self.groups.contains(group) || *group == self.gid;
        groups.iter().copied().filter(|one| !known(one)).collect()
    }
}

impl Profile {
    /// Returns every difference between this profile and the status of a process. An optional
    /// capability may be absent; no capability beyond the profile's may be in any set. A capability
    /// that may be raised for a call may be effective when the status is read.
    ///
    /// A process that starts without privilege cannot change its user and groups. Processes whose
    /// profile has `other_unprivileged_uid` keep the user and groups that they were started with,
    /// as long as the user is not 0. All other processes start as user 0 and set theirs. The
    /// primary group may be among the supplementary groups of every process: container runtimes
    /// repeat it there since CVE-2023-25173, and it adds no right.
    #[must_use]
    pub fn deviations(&self, status: &Status) -> Vec<Deviation> {
        let mut found = Vec::new();
        let mut expect = |what, expected: String, actual: String, holds: bool| {
            if !holds {
                found.push(Deviation { what, expected, found: actual });
            }
        };
        let identity = &self.identity;
        let (user, group) = (status.uids[0], status.gids[0]);
        let kept = identity.other_unprivileged_uid && user != 0;
        expect(
            "user",
            identity.uid.to_string(),
            format!("{:?}", status.uids),
            status.uids == [identity.uid; 4] || (kept && status.uids == [user; 4]),
        );
        expect(
            "group",
            identity.gid.to_string(),
            format!("{:?}", status.gids),
            status.gids == [identity.gid; 4] || (kept && status.gids == [group; 4]),
        );
        expect(
            "supplementary groups",
            format!("{:?}", identity.groups),
            format!("{:?}", status.groups),
            kept || identity.extra_groups(&status.groups).is_empty(),
        );

        let set = |belongs: fn(&HeldCapability) -> bool| -> u64 {
            let held = self.capabilities.iter().filter(|held| belongs(held));
            held.map(|held| held.capability.bit()).sum()
        };
        let allowed = set(|_| true);
        let needed = set(|held| !held.optional);
        let effective = set(|held| held.effective && !held.optional);
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
        // A process that starts without capabilities cannot drop its bounding set, and no_new_privs
        // makes that set meaningless.
        let powerless = status.permitted == 0 && self.identity.uid != 0;
        expect(
            "bounding set",
            hex(allowed),
            hex(status.bounding),
            status.bounding & !allowed == 0 || powerless,
        );
        for (what, set) in [
            ("inheritable capabilities", status.inheritable),
            ("ambient capabilities", status.ambient),
        ] {
            expect(what, hex(0), hex(set), set == 0);
        }
        expect(
            "no_new_privs",
            "1".to_owned(),
            u8::from(status.no_new_privs).to_string(),
            status.no_new_privs,
        );
        expect("seccomp", "2 (filter)".to_owned(), status.seccomp.to_string(), status.seccomp == 2);
        found
    }
}
