//! System calls as an attacker makes them in a compromised process: any number, any arguments. The
//! only file of these tests with `unsafe`.
#![allow(unsafe_code)]
use std::io;

pub(super) fn call(number: i64, arguments: [i64; 4]) -> io::Result<i64> {
    let [a, b, c, d] = arguments;
    // SAFETY: the calls that the scripts make take no pointer in these arguments, or a null one,
    // and a clone shares no memory: nothing of this process is read or written.
    match unsafe { libc::syscall(number, a, b, c, d, 0) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
