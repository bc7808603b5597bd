//! The two capabilities that are permitted but asleep: awake for one call, on the calling thread alone.
//!
//! A host that does not grant them is tolerated: the call is made without, and the kernel's answer stands.
use ebs_csi_policy::profile::BROKER;

/// Growing a mounted ext4 asks for `CAP_SYS_RESOURCE`.
pub fn with_resource<T>(call: impl FnOnce() -> T) -> T {
    with("CAP_SYS_RESOURCE", call)
}

/// The host grants what [`with_resource`] wakes.
pub fn has_resource() -> bool {
    find("CAP_SYS_RESOURCE").is_some()
}

/// Opening the root of a volume that its application made private asks for `CAP_DAC_READ_SEARCH`.
pub fn with_search<T>(call: impl FnOnce() -> T) -> T {
    with("CAP_DAC_READ_SEARCH", call)
}

fn with<T>(name: &str, call: impl FnOnce() -> T) -> T {
    let _awake = find(name);
    call()
}

fn find(name: &str) -> Option<ebs_csi_confine::Raised> {
    let mut known = BROKER.capabilities.iter();
    let held = known.find(|held| held.capability.name == name)?;
    ebs_csi_confine::raise(held.capability).ok()
}
