//! Limits, capabilities, user and groups, and `no_new_privs`, in an order in which each step
//! permits the next.

use std::io;
use std::marker::PhantomData;

use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::process::secure_bits;
use ebs_csi_policy::profile::{Capability, HeldCapability, Limit, Profile, Resource};
use rustix::process::{
    DumpableBehavior, Gid, Rlimit, Uid, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::{Fault, sys};

/// Sets the soft and the hard limit to the profile's value. A hard limit that is already lower
/// stays: raising it needs a capability, and a lower limit is harmless. The exception is a limit of
/// 0 for core dumps, which is less than 1 and permits more; it is raised where that is possible.
pub(crate) fn set_limits(limits: &[Limit]) -> Result<(), Fault> {
    for limit in limits {
        let (resource, name) = match limit.resource {
            Resource::Core => (rustix::process::Resource::Core, "core"),
            Resource::Descriptors => (rustix::process::Resource::Nofile, "nofile"),
        };
        let exactly = Rlimit { current: Some(limit.value), maximum: Some(limit.value) };
        if limit.resource == Resource::Core && setrlimit(resource, exactly).is_ok() {
            continue;
        }
        set_limit(resource, name, limit.value)?;
    }
    Ok(())
}

pub(crate) fn set_limit(
    resource: rustix::process::Resource,
    name: &'static str,
    value: u64,
) -> Result<(), Fault> {
    let value = match getrlimit(resource).maximum {
        Some(hard) => value.min(hard),
        None => value,
    };
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
        .map_err(|error| Fault::Limit(name, error.into()))
}

/// What the kernel says of a process after the change of its identity, and `/proc` does not.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The optional capabilities that the host does not grant.
    pub(crate) missing: Vec<&'static str>,
    /// The securebits.
    pub(crate) secure_bits: u32,
}

/// Takes on the profile's identity.
pub(crate) fn apply(profile: &Profile, before: &Status) -> Result<Taken, Fault> {
    let (held, missing) = granted(profile.capabilities, before)?;
    let wanted: u64 = held.iter().map(|one| one.capability.bit()).sum();

    // 1. Dropping from the bounding set and setting the securebits need CAP_SETPCAP, which the
    //    change of the sets below gives up. A process that starts without any capability cannot
    //    drop them and need not: with no_new_privs nothing can give it a capability again.
    if before.permitted != 0 {
        for number in 0..64 {
            if before.bounding & (1 << number) != 0 && wanted & (1 << number) == 0 {
                sys::drop_from_bounding_set(number)
                    .map_err(|error| Fault::Capabilities("bounding", error))?;
            }
        }
        let wanted = u32::try_from(secure_bits()).unwrap_or(u32::MAX);
        set_capabilities_secure_bits(CapabilitiesSecureBits::from_bits_retain(wanted))
            .map_err(|error| Fault::Capabilities("secure", error.into()))?;
    }
    caps::clear(None, caps::CapSet::Ambient).map_err(|error| refused("ambient", &error))?;

    // 2. Groups before the user: a change of groups needs CAP_SETGID.
    change_user(profile, before)?;

    // 3. The sets themselves. The effective set comes first: it must stay within the permitted set.
    let set = |which: caps::CapSet, name, value: u64| {
        caps::set(None, which, &as_set(value)).map_err(|error| refused(name, &error))
    };
    let effective: u64 =
        held.iter().filter(|one| one.effective).map(|one| one.capability.bit()).sum();
    set(caps::CapSet::Effective, "effective", effective)?;
    set(caps::CapSet::Permitted, "permitted", wanted)?;
    set(caps::CapSet::Inheritable, "inheritable", 0)?;

    // 4. After the change of the user, which resets the dumpable attribute.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Fault::Control("PR_SET_DUMPABLE", error.into()))?;
    set_no_new_privs(true).map_err(|error| Fault::Control("PR_SET_NO_NEW_PRIVS", error.into()))?;
    let secure_bits = capabilities_secure_bits()
        .map_err(|error| Fault::Control("PR_GET_SECUREBITS", error.into()))?;
    Ok(Taken { missing, secure_bits: secure_bits.bits() })
}

/// Returns the profile's capabilities that the process has, and the names of the optional ones that
/// it lacks.
fn granted(
    capabilities: &'static [HeldCapability],
    before: &Status,
) -> Result<(Vec<HeldCapability>, Vec<&'static str>), Fault> {
    let mut held = Vec::new();
    let mut missing = Vec::new();
    for one in capabilities {
        if before.permitted & one.capability.bit() != 0 {
            held.push(*one);
        } else if one.optional {
            missing.push(one.capability.name);
        } else {
            return Err(Fault::CapabilityMissing(one.capability.name));
        }
    }
    Ok((held, missing))
}

fn change_user(profile: &Profile, before: &Status) -> Result<(), Fault> {
    let wanted = &profile.identity;
    let found = before.uids[0];
    // A process that already has its own user and lacks the right to change it has nothing to do.
    // Another user and groups, chosen by the operator, are accepted where the policy says so
    // (`Profile::deviations` has the rule).
    let ordinary = before.uids == [found; 4] && found != 0 && before.permitted == 0;
    let own = before.uids == [wanted.uid; 4] && before.gids == [wanted.gid; 4];
    let same = own
        && (before.groups == wanted.groups
            || (ordinary && wanted.extra_groups(&before.groups).is_empty()));
    if same || (ordinary && wanted.other_unprivileged_uid) {
        return Ok(());
    }
    if ordinary && found != wanted.uid {
        return Err(Fault::WrongUser { wanted: wanted.uid, found });
    }
    let groups: Vec<Gid> = wanted.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let failed = |what, id| {
        move |error: rustix::io::Errno| Fault::Identity { what, id, source: error.into() }
    };
    set_thread_groups(&groups).map_err(failed("groups", wanted.gid))?;
    let gid = Gid::from_raw(wanted.gid);
    set_thread_res_gid(gid, gid, gid).map_err(failed("group", wanted.gid))?;
    let uid = Uid::from_raw(wanted.uid);
    set_thread_res_uid(uid, uid, uid).map_err(failed("user", wanted.uid))
}

/// Converts `bits` to a set. `bits` holds only capabilities of the policy, and the crate knows all
/// of them.
fn as_set(bits: u64) -> caps::CapsHashSet {
    caps::all().into_iter().filter(|one| bits & one.bitmask() != 0).collect()
}

fn refused(which: &'static str, error: &caps::errors::CapsError) -> Fault {
    Fault::Capabilities(which, io::Error::other(error.to_string()))
}

/// A guard: while it lives, the calling thread has the capability in its effective set. It is not
/// `Send`.
#[derive(Debug)]
pub struct Raised {
    capability: caps::Capability,
    // Capability sets belong to a thread.
    thread: PhantomData<*const ()>,
}

/// Raises a permitted capability in the calling thread. Fails with [`Fault::CapabilityMissing`]
/// when the capability is not permitted, [`Fault::Capabilities`] when the kernel refuses.
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
