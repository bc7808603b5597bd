//! The two compiled-in policies: one for nodes, and one that recognises simulated disks.

use crate::place::PlaceClass;

mod digests {
    include!(concat!(env!("OUT_DIR"), "/digests.rs"));
}

/// A compiled-in policy. Both policies have the same rules; they differ in what they recognise as a
/// volume's disk and in the default for `places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `production` or `sandbox`.
    pub name: &'static str,
    /// SHA-256 over the policy files and the name, 64 hexadecimal digits. It differs between the
    /// two policies and between any two states of the files.
    pub digest: &'static str,
    /// A loop device counts as the volume's disk when the name of its backing file is the volume's
    /// id.
    pub simulated_devices: bool,
    /// Where volumes may be mounted unless the process is told otherwise.
    pub places: PlaceClass,
}

/// The policy for nodes: a loop device is never recognised as a volume's disk.
pub const PRODUCTION: Policy = Policy {
    name: "production",
    digest: digests::PRODUCTION,
    simulated_devices: false,
    places: PlaceClass::Kubernetes,
};

/// The policy for a machine without EBS, which also recognises simulated disks. A process that
/// enforces this policy logs that, and the auditor reports it as a deviation.
pub const SANDBOX: Policy = Policy {
    name: "sandbox",
    digest: digests::SANDBOX,
    simulated_devices: true,
    places: PlaceClass::Any,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_digests_differ_and_are_sha256_hex() {
        assert_ne!(PRODUCTION.digest, SANDBOX.digest);
        for policy in [PRODUCTION, SANDBOX] {
            assert_eq!(policy.digest.len(), 64);
            assert!(policy.digest.bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn only_the_sandbox_recognises_simulated_devices() {
        let simulating: Vec<&str> = [PRODUCTION, SANDBOX]
            .iter()
            .filter(|policy| policy.simulated_devices)
            .map(|policy| policy.name)
            .collect();
        assert_eq!(simulating, ["sandbox"]);
    }
}
