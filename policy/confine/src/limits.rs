//! Resource limits.

use ebs_csi_policy::profile::{Limit, Resource};
use rustix::process::{self, Rlimit};

use crate::Fault;

/// Sets the soft and the hard limit to the profile's value. A hard limit that is already lower
/// stays: raising it needs a capability, and a lower limit is harmless.
pub(crate) fn apply(limits: &[Limit]) -> Result<(), Fault> {
    for limit in limits {
        let (resource, name) = match limit.resource {
            Resource::Core => (process::Resource::Core, "core"),
            Resource::Descriptors => (process::Resource::Nofile, "nofile"),
        };
        set(resource, name, limit.value)?;
    }
    Ok(())
}

/// Sets one limit.
pub(crate) fn set(
    resource: process::Resource,
    name: &'static str,
    value: u64,
) -> Result<(), Fault> {
    let value = match process::getrlimit(resource).maximum {
        Some(hard) => value.min(hard),
        None => value,
    };
    process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
        .map_err(|error| Fault::Limit(name, error.into()))
}
