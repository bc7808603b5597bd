//! The unsafe code of this program: a call to the allocator.
#![allow(unsafe_code)]

/// Returns unused pages to the kernel. mimalloc does so by itself only during allocations and
/// deallocations, so a process that comes to rest would keep the memory of its last burst.
pub(crate) fn give_back_memory() {
    // SAFETY: mi_collect may be called at any time from any thread that has not ended; it touches
    // no block that is in use (mimalloc.h).
    unsafe { libmimalloc_sys::mi_collect(true) }
}
