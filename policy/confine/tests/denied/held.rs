//! Each limit and each capability of a profile, and the securebits.

use std::process::ExitCode;

use caps::{CapSet, has_cap};
use ebs_csi_confine::{Entering, raise};
use ebs_csi_policy::profile::{Capability, Profile, Resource, process};
use rustix::process::{Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits,
};

use crate::outcome;

/// The bits of linux/securebits.h that every kernel has.
const SECURE_BITS: u32 = 8;
/// The sets of a capability: capabilities(7).
const SETS: [CapSet; 5] =
    [CapSet::Permitted, CapSet::Effective, CapSet::Bounding, CapSet::Inheritable, CapSet::Ambient];

pub(crate) fn attempt(profile: &'static Profile) -> ExitCode {
    let has = |set, capability| has_cap(None, set, capability).expect("a set");
    let mut all: Vec<caps::Capability> = caps::all().into_iter().collect();
    // A newer kernel has more, and an older one fewer.
    all.retain(|capability| has_cap(None, CapSet::Bounding, *capability).is_ok());
    let granted: Vec<bool> = all.iter().map(|one| has(CapSet::Permitted, *one)).collect();
    let hard: Vec<_> =
        profile.limits.iter().map(|limit| limit_of(limit.resource).maximum).collect();
    Entering::begin(profile).and_then(Entering::identity).expect("identity");

    let mut differences = Vec::new();
    let mut compare = |what: String, found: bool, wanted: bool| {
        if found != wanted {
            differences.push(format!("{what}: {found}"));
        }
    };
    for (limit, hard) in profile.limits.iter().zip(hard) {
        // A limit that was lower stays, unless the process may raise it and must.
        let lower = hard.map_or(limit.value, |hard| hard.min(limit.value));
        let Rlimit { current, maximum } = limit_of(limit.resource);
        let value = maximum.unwrap_or(u64::MAX - 1);
        let is_limited = current == maximum && (value == limit.value || value == lower);
        compare(format!("{limit:?}"), is_limited, true);
        let more = Rlimit { current: Some(value + 1), maximum: Some(value + 1) };
        let raised = setrlimit(resource(limit.resource), more).is_ok();
        compare(format!("{limit:?} can be raised"), raised, false);
        if limit.resource == Resource::Descriptors {
            let value = i32::try_from(value).unwrap_or(i32::MAX);
            for (number, wanted) in [(value - 1, true), (value, false)] {
                let made = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), number).is_ok();
                compare(format!("descriptor {number}"), made, wanted);
            }
        }
    }
    for (capability, granted) in all.into_iter().zip(granted) {
        let mut rows = profile.capabilities.iter();
        let row = rows.find(|row| row.capability.number == capability.index());
        let held = row.is_some() && granted;
        for set in SETS {
            let wanted = match set {
                CapSet::Permitted | CapSet::Bounding => held,
                CapSet::Effective => held && row.is_some_and(|row| row.effective),
                CapSet::Inheritable | CapSet::Ambient => false,
            };
            compare(format!("{capability} in {set:?}"), has(set, capability), wanted);
        }
        let ours = Capability { name: "of this number", number: capability.index() };
        compare(format!("{capability} can be raised"), raise(ours).is_ok(), held);
        if !held {
            let taken = caps::raise(None, CapSet::Permitted, capability).is_ok();
            compare(format!("{capability} can be taken"), taken, false);
        }
    }
    let secured = capabilities_secure_bits().expect("prctl").bits();
    for bit in (0..SECURE_BITS).map(|number| 1_u32 << number) {
        let mut rows = process::SECURE_BITS.iter().flat_map(|row| row.bits);
        let wanted = rows.any(|one| one.number == u64::from(bit));
        compare(format!("securebit {bit:#x}"), secured & bit != 0, wanted);
        let other = CapabilitiesSecureBits::from_bits_retain(secured ^ bit);
        let changed = set_capabilities_secure_bits(other).is_ok();
        compare(format!("securebit {bit:#x} can be changed"), changed, false);
    }
    outcome(&differences)
}

fn resource(resource: Resource) -> rustix::process::Resource {
    match resource {
        Resource::Core => rustix::process::Resource::Core,
        Resource::Descriptors => rustix::process::Resource::Nofile,
    }
}

pub(crate) fn limit_of(of: Resource) -> Rlimit {
    getrlimit(resource(of))
}
