//! What cannot be said in safe Rust: a call to the allocator.
#![allow(unsafe_code)]

/// Gives the pages that hold nothing back to the kernel. mimalloc does so by itself only while memory is asked for or given back, so a process that
/// comes to rest would keep what its last burst needed.
pub(crate) fn give_back_memory() {
    // SAFETY: mi_collect may be called at any time from any thread that has not ended; it touches no block that is in use (mimalloc.h).
    unsafe { libmimalloc_sys::mi_collect(true) }
}
