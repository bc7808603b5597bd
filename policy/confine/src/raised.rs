//! A capability that is effective only around the calls that need it.

use std::io;
use std::marker::PhantomData;

use ebs_csi_policy::profile::Capability;

use crate::Fault;

/// A guard: while it lives, the calling thread has the capability in its effective set. It is not
/// `Send`.
#[derive(Debug)]
pub struct Raised {
    capability: caps::Capability,
    // Capability sets belong to a thread.
    thread: PhantomData<*const ()>,
}

/// Raises a permitted capability in the calling thread.
///
/// # Errors
/// [`Fault::CapabilityMissing`] when the capability is not permitted, [`Fault::Capabilities`] when
/// the kernel refuses.
pub fn raise(capability: Capability) -> Result<Raised, Fault> {
    let known = caps::all()
        .into_iter()
        .find(|one| one.index() == capability.number)
        .ok_or(Fault::CapabilityMissing(capability.name))?;
    let refused = |error: caps::errors::CapsError| {
        Fault::Capabilities("effective", io::Error::other(error.to_string()))
    };
    if !caps::has_cap(None, caps::CapSet::Permitted, known).map_err(refused)? {
        return Err(Fault::CapabilityMissing(capability.name));
    }
    caps::raise(None, caps::CapSet::Effective, known).map_err(refused)?;
    Ok(Raised { capability: known, thread: PhantomData })
}

impl Drop for Raised {
    fn drop(&mut self) {
        if caps::drop(None, caps::CapSet::Effective, self.capability).is_err() {
            // A thread that cannot drop a capability must not serve another request.
            std::process::abort();
        }
    }
}
