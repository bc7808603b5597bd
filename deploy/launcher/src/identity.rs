//! Giving up what a process does not need. Called while there is one thread.

use std::io;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// User and group of the router: the group by which it may use the processes' sockets.
pub const ROUTER: u32 = 65529;

/// User and group of the process that starts and ends the others.
pub const LAUNCHER: u32 = 65528;

/// Becomes `id`, keeps `keep` as permitted and effective capabilities, can gain nothing from then on.
///
/// A process that is not root has nothing to give up but the way back: only `no_new_privs` is set.
///
/// # Errors
/// When the kernel refuses; the process must then end.
pub fn become_unprivileged(id: u32, keep: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    if !geteuid().is_root() {
        return Ok(());
    }
    for capability in 0..64_u32 {
        let one = CapabilitySet::from_bits_retain(1 << capability);
        if !keep.contains(one) {
            match remove_capability_from_bounding_set(one) {
                // The kernel has no such capability.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(!keep.is_empty())?;
    set_thread_res_uid(uid, uid, uid)?;
    clear_ambient_capability_set()?;
    let kept = rustix::thread::capabilities(None)?.permitted & keep;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(())
}
