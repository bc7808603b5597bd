//! The two capabilities that are permitted but not effective. They are raised for one call, on the
//! calling thread alone.
//!
//! A host that does not grant them is tolerated: the call is made without them, and the kernel's
//! answer counts.
use ebs_csi_policy::profile::BROKER;

/// Makes a call with `CAP_SYS_RESOURCE`, which growing a mounted ext4 needs.
pub fn with_resource<T>(call: impl FnOnce() -> T) -> T {
    with("CAP_SYS_RESOURCE", call)
}

/// Returns whether the host grants the capability of [`with_resource`].
pub fn has_resource() -> bool {
    raise("CAP_SYS_RESOURCE").is_some()
}

/// Makes a call with `CAP_DAC_READ_SEARCH`, which opening the root of a volume needs when its
/// application made it private.
pub fn with_search<T>(call: impl FnOnce() -> T) -> T {
    with("CAP_DAC_READ_SEARCH", call)
}

fn with<T>(name: &str, call: impl FnOnce() -> T) -> T {
    let _raised = raise(name);
    call()
}

fn raise(name: &str) -> Option<ebs_csi_confine::Raised> {
    let mut known = BROKER.capabilities.iter();
    let held = known.find(|held| held.capability.name == name)?;
    ebs_csi_confine::raise(held.capability).ok()
}
