//! System calls as an attacker makes them in a running process, by ptrace(2): any number, any
//! arguments. The only file of these tests with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A process that is stopped until this value is dropped.
#[derive(Debug)]
pub(crate) struct Stopped {
    pid: i32,
    memory: File,
    registers: libc::user_regs_struct,
}

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Called {
    Returned(i64),
    /// The negative of what the kernel returned: errno(3).
    Failed(i32),
    /// The process ended by this signal.
    Killed(i32),
}

fn ptrace(request: libc::c_uint, pid: i32, data: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: the requests that are made here write at most one `user_regs_struct`, to which `data`
    // points, and otherwise take no pointer.
    match unsafe { libc::ptrace(request, pid, 0, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits until the process stops. Returns the signal that ended it, if one did.
fn wait(pid: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: the kernel writes one integer, to which the pointer points.
    match unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        _ if libc::WIFSIGNALED(status) => Ok(Some(libc::WTERMSIG(status))),
        _ => Ok(None),
    }
}

impl Stopped {
    /// Stops the process where it waits in a system call.
    pub(crate) fn new(pid: i32) -> io::Result<Self> {
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        loop {
            ptrace(libc::PTRACE_ATTACH, pid, std::ptr::null_mut())?;
            wait(pid)?;
            // SAFETY: all fields are integers.
            let registers = unsafe { std::mem::zeroed() };
            let mut stopped = Self { pid, memory: memory.try_clone()?, registers };
            stopped.read_registers()?;
            let mut instruction = [0; 2];
            stopped.memory.read_exact_at(&mut instruction, stopped.registers.rip - 2)?;
            if instruction == [0x0f, 0x05] {
                return Ok(stopped);
            }
            // The process runs elsewhere: dropped, it goes on to its next call.
        }
    }

    fn read_registers(&mut self) -> io::Result<()> {
        ptrace(libc::PTRACE_GETREGS, self.pid, (&raw mut self.registers).cast())
    }

    /// Writes bytes where the process has none of its own. Returns their address.
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<u64> {
        // Below the stack and its red zone of 128 bytes.
        let address = (self.registers.rsp - 4096) + offset;
        self.memory.write_all_at(bytes, address)?;
        Ok(address)
    }

    /// Has the process make a system call.
    pub(crate) fn call(&mut self, number: i64, arguments: [u64; 6]) -> io::Result<Called> {
        let before = self.registers;
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let mut registers = libc::user_regs_struct { rdi, rsi, rdx, r10, r8, r9, ..before };
        registers.rax = number.cast_unsigned();
        registers.rip = before.rip - 2;
        // No call is to be begun again.
        registers.orig_rax = u64::MAX;
        ptrace(libc::PTRACE_SETREGS, self.pid, (&raw mut registers).cast())?;
        ptrace(libc::PTRACE_SINGLESTEP, self.pid, std::ptr::null_mut())?;
        if let Some(signal) = wait(self.pid)? {
            return Ok(Called::Killed(signal));
        }
        self.read_registers()?;
        let returned = self.registers.rax.cast_signed();
        self.registers = before;
        ptrace(libc::PTRACE_SETREGS, self.pid, (&raw mut self.registers).cast())?;
        // The kernel's errors are at most 4095 (linux/err.h).
        Ok(match returned {
            -4095..0 => Called::Failed(i32::try_from(-returned).unwrap_or(i32::MAX)),
            _ => Called::Returned(returned),
        })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = ptrace(libc::PTRACE_DETACH, self.pid, std::ptr::null_mut());
    }
}
