//! The compiled-in policies: one for nodes, one for a virtual machine whose disks its hypervisor
//! makes, and one that recognises simulated disks.

use crate::disk_class::DiskClass;
use crate::place::PlaceClass;

mod digests {
    include!(concat!(env!("OUT_DIR"), "/digests.rs"));
}

mod compiled {
    use super::{DiskClass, PlaceClass, Policy, digests};
    include!(concat!(env!("OUT_DIR"), "/policies.rs"));
}

/// A compiled-in policy. All policies have the same rules; they differ in what they recognise as a
/// volume's disk and in the default for `places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `production`, `guest` or `sandbox`.
    pub name: &'static str,
    /// SHA-256 over the values of the policy's files and the name, 64 hexadecimal digits. It
    /// differs between the policies, and changes with every value.
    pub digest: &'static str,
    /// The mount-helper's flag that chooses the policy; `None` for the one without a flag.
    pub flag: Option<&'static str>,
    /// The disks that can be volumes.
    pub disks: DiskClass,
    /// Where volumes may be mounted unless a setting says otherwise.
    pub places: PlaceClass,
    /// What the policy is for.
    pub why: &'static str,
}

/// The files that the digests cover, each with its own digest.
pub const FILES: &[(&str, &str)] = digests::FILES;

/// The policy for nodes: only EC2's own disks are volumes.
pub const PRODUCTION: Policy = compiled::PRODUCTION;

/// The policy for a virtual machine, which also recognises disks that its hypervisor made. A
/// process that enforces this policy logs that, and the auditor reports it as a deviation unless
/// `--policy` names it.
pub const GUEST: Policy = compiled::GUEST;

/// The policy for a machine without EBS, which recognises simulated disks alone. Logged and
/// reported like [`GUEST`].
pub const SANDBOX: Policy = compiled::SANDBOX;

impl Policy {
    /// All policies.
    pub const ALL: [Self; 3] = [PRODUCTION, GUEST, SANDBOX];

    /// Returns the policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name == name)
    }

    /// Returns the policy that this flag of the mount-helper chooses.
    pub fn chosen_by(flag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.flag == Some(flag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_digests_differ_and_are_sha256_hex() {
        for (index, policy) in Policy::ALL.into_iter().enumerate() {
            assert_eq!(policy.digest.len(), 64);
            assert!(policy.digest.bytes().all(|b| b.is_ascii_hexdigit()));
            let mut others = Policy::ALL[..index].iter();
            assert!(others.all(|other| other.digest != policy.digest));
        }
    }

    #[test]
    fn policies_without_flag_take_ebs_disks_alone() {
        for policy in Policy::ALL {
            let chosen = policy.flag.is_some();
            assert_eq!(policy.disks != DiskClass::Ebs, chosen, "{}", policy.name);
            assert_eq!(Policy::named(policy.name), Some(policy));
        }
        assert_eq!(Policy::chosen_by("--guest-disks"), Some(GUEST));
        assert_eq!(Policy::chosen_by("--paths"), None);
    }
}
