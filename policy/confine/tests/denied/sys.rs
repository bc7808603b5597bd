//! System calls as an attacker makes them in a compromised process: any number, any arguments.
#![allow(unsafe_code)]

use std::io;

pub(crate) fn call(number: i64, arguments: [i64; 6]) -> io::Result<()> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the attempts pass numbers, null pointers, or a string literal to be read. A call that
    // maps memory lets the kernel choose where, and one that closes a descriptor closes one that
    // the attempt has opened or that this process does not use again.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
