//! Serves one file late: a FUSE file system (`linux/fuse.h`) whose root is the file, mounted over
//! the file itself.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, major, minor, seek};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::Latency;

// Requests, by their number in `linux/fuse.h`.
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const FALLOCATE: u32 = 43;
const LSEEK: u32 = 46;

/// The requests that a disk receives; the others are those of a file system.
const DELAYED: [u32; 4] = [READ, WRITE, FSYNC, FALLOCATE];

/// Bytes of the header of a request, and of an answer.
const REQUEST: usize = 40;
const ANSWER: usize = 16;
/// The most bytes that a request reads or writes.
const LONGEST: u32 = 1 << 20;
const PAGE: u32 = 4096;
/// Requests without a waiting thread that the kernel has under way; a loop device has 128.
const AT_ONCE: u32 = 256;

/// `FUSE_ASYNC_READ`, `FUSE_BIG_WRITES`, `FUSE_ASYNC_DIO`, `FUSE_MAX_PAGES`.
const FEATURES: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;
/// `FOPEN_DIRECT_IO`, `FOPEN_PARALLEL_DIRECT_WRITES`.
const DIRECT: u32 = 1 | 1 << 6;
/// `FATTR_SIZE`.
const SIZE: u32 = 1 << 3;
/// Of lseek(2); the kernel passes on no other one than this and `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;

/// Serves `path` until standard input ends, then clears the loop devices over it and unmounts it.
/// Says on standard output when the file is served.
pub(crate) fn serve(path: &Path, latency: Latency) -> io::Result<()> {
    // What ends the bench by a terminal leaves the server to the end of its standard input.
    let _ = rustix::process::setsid();
    let file = File::options().read(true).write(true).open(path)?;
    let kernel = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", kernel.as_raw_fd());
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("ebs-csi-bench", path, "fuse", flags, options.as_c_str())?;
    let kernel = Arc::new(kernel);
    let (sender, answers) = mpsc::channel();
    thread::spawn({
        let kernel = Arc::clone(&kernel);
        move || answer_late(&kernel, &answers)
    });
    thread::spawn(move || receive(&kernel, &file, latency, &sender));
    // The other threads answer this question.
    let number = std::fs::metadata(path).map(|metadata| metadata.dev());
    let waited = number.as_ref().map_or(Ok(0), |_| {
        println!("served");
        io::stdin().read_to_end(&mut Vec::new())
    });
    // By number, because the mount may be detached already, and then has no path.
    let cleared = number.and_then(clear_loops);
    let _ = unmount(path, UnmountFlags::DETACH);
    waited.and(cleared)
}

/// Clears the loop devices whose file is on file system `number`. The kernel clears one that is in
/// use with its last user.
fn clear_loops(number: u64) -> io::Result<()> {
    let list = ["--list", "--noheadings", "--output", "NAME,BACK-MAJ:MIN"];
    let all = Command::new("losetup").args(list).output()?.stdout;
    let number = format!("{}:{}", major(number), minor(number));
    for line in String::from_utf8_lossy(&all).lines() {
        let mut columns = line.split_whitespace();
        if let Some(device) = columns.next()
            && columns.next() == Some(&number)
        {
            Command::new("losetup").arg("--detach").arg(device).status()?;
        }
    }
    Ok(())
}

/// Writes each answer when it is due. All wait equally long, so none is due before an earlier one.
fn answer_late(mut kernel: &File, answers: &Receiver<(Instant, Vec<u8>)>) {
    for (due, answer) in answers {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // Fails for a request that was interrupted.
        let _ = kernel.write_all(&answer);
    }
}

/// Executes each request on arrival, until the file is unmounted.
fn receive(mut kernel: &File, file: &File, latency: Latency, late: &Sender<(Instant, Vec<u8>)>) {
    let mut memory = vec![0; (LONGEST + PAGE) as usize];
    loop {
        let length = match rustix::io::read(kernel, &mut memory) {
            Ok(length) => length,
            // NOENT: the request was taken back.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(_) => return,
        };
        let arrived = Instant::now();
        let request = Request(&memory[..length]);
        let kind = request.number(4);
        if matches!(kind, FORGET | INTERRUPT) {
            continue;
        }
        let answer = request.answer(kind, file);
        if DELAYED.contains(&kind) {
            let _ = late.send((arrived + latency.duration(), answer));
        } else {
            let _ = kernel.write_all(&answer);
        }
    }
}

/// A request with its header.
struct Request<'a>(&'a [u8]);

impl Request<'_> {
    /// Returns the number at `offset`, or 0 behind the end.
    fn number(&self, offset: usize) -> u32 {
        let bytes = self.0.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    }

    /// Returns the long number at `offset`, or 0 behind the end.
    fn long(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_ne_bytes(bytes.unwrap_or_default())
    }

    /// Executes the request. Returns the answer with its header.
    fn answer(&self, kind: u32, file: &File) -> Vec<u8> {
        let mut answer = vec![0; ANSWER];
        let error = match self.execute(kind, file, &mut answer) {
            Ok(()) => 0,
            Err(error) => {
                answer.truncate(ANSWER);
                -error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
            }
        };
        let length = u32::try_from(answer.len()).unwrap_or_default();
        answer[..4].copy_from_slice(&length.to_ne_bytes());
        answer[4..8].copy_from_slice(&error.to_ne_bytes());
        answer[8..ANSWER].copy_from_slice(&self.long(8).to_ne_bytes());
        answer
    }

    fn execute(&self, kind: u32, file: &File, answer: &mut Vec<u8>) -> io::Result<()> {
        // Most requests begin with a handle and an offset.
        let offset = self.long(REQUEST + 8);
        let length = self.number(REQUEST + 16);
        match kind {
            INIT => {
                let readahead = self.number(REQUEST + 8);
                numbers(answer, [7, 31, readahead, FEATURES, AT_ONCE | AT_ONCE << 16, LONGEST, 1]);
                numbers(answer, [LONGEST / PAGE, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            GETATTR => attributes(file, answer)?,
            SETATTR => {
                if self.number(REQUEST) & SIZE != 0 {
                    file.set_len(self.long(REQUEST + 16))?;
                }
                attributes(file, answer)?;
            }
            OPEN => numbers(answer, [0, 0, DIRECT, 0]),
            READ => {
                answer.resize(ANSWER + length as usize, 0);
                let read = file.read_at(&mut answer[ANSWER..], offset)?;
                answer.truncate(ANSWER + read);
            }
            WRITE => {
                file.write_all_at(&self.0[REQUEST + 40..], offset)?;
                numbers(answer, [length, 0]);
            }
            FALLOCATE => {
                let mode = FallocateFlags::from_bits_retain(self.number(REQUEST + 24));
                fallocate(file, mode, offset, self.long(REQUEST + 16))?;
            }
            LSEEK => {
                let data = length == SEEK_DATA;
                let from = if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
                longs(answer, [seek(file, from)?]);
            }
            STATFS => {
                longs(answer, [0; 5]);
                numbers(answer, [PAGE, 255, PAGE, 0, 0, 0, 0, 0, 0, 0]);
            }
            // The file is in memory.
            FSYNC | FLUSH | RELEASE => {}
            _ => return Err(Errno::NOSYS.into()),
        }
        Ok(())
    }
}

/// Appends the attributes of the file, which are valid for no time.
fn attributes(file: &File, answer: &mut Vec<u8>) -> io::Result<()> {
    let size = file.metadata()?.len();
    longs(answer, [0, 0, 1, size, size / 512, 0, 0, 0]);
    numbers(answer, [0, 0, 0, 0o100_600, 1, 0, 0, 0, PAGE, 0]);
    Ok(())
}

fn numbers<const N: usize>(answer: &mut Vec<u8>, numbers: [u32; N]) {
    answer.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
}

fn longs<const N: usize>(answer: &mut Vec<u8>, numbers: [u64; N]) {
    answer.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
}
