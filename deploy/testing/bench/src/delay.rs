//! Disks that answer each request after a given time, as a network disk like EBS does.

pub(crate) mod server;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::node::bare::LoopDevice;
use ebs_csi_sandbox::binaries::Binaries;
use rustix::fs::OFlags;

use crate::report::summary::Summary;

/// The time after which a disk answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latency {
    microseconds: u32,
}

impl Latency {
    fn duration(self) -> Duration {
        Duration::from_micros(self.microseconds.into())
    }
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix("ms").and_then(|number| number.parse::<f64>().ok());
        match number {
            Some(number) if (0.0..=1e3).contains(&number) =>
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 0 and a million"
                )]
                Ok(Self { microseconds: (number * 1e3).round() as u32 })
            }
            _ => Err("not a time of at most a second, such as 0.5ms".to_owned()),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", f64::from(self.microseconds) / 1e3)
    }
}

/// A file that answers reads, writes and flushes late, by a process of its own: a thread that waits
/// for the disk cannot be killed, so it must not be a thread of the process that answers.
#[derive(Debug)]
pub(crate) struct DelayedFile {
    server: Child,
}

impl DelayedFile {
    /// Makes `file` answer late. Creates the file if it does not exist.
    pub(crate) fn make(binaries: &Binaries, file: &Path, latency: Latency) -> io::Result<Self> {
        File::options().create(true).append(true).open(file)?;
        let mut server = Command::new(binaries.path("ebs-csi-bench")?)
            .args(["serve-delayed", "--latency", &latency.to_string()])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ready = server.stdout.take().map(|output| BufReader::new(output).lines().next());
        let made = Self { server };
        match ready.flatten() {
            Some(Ok(_)) => Ok(made),
            _ => Err(io::Error::other(format!("{} cannot be served late", file.display()))),
        }
    }
}

impl Drop for DelayedFile {
    /// Has the server clear the loop devices over the file, and waits for it.
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// Measures a disk of this latency. Returns a sentence with the median time of a direct read of
/// 4 KiB, and of the slowest of eight at the same time.
pub(crate) fn measured(binaries: &Binaries, latency: Latency) -> io::Result<String> {
    let directory = std::env::temp_dir().join(format!("ebs-csi-bench.{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let times = reads(binaries, latency, &directory);
    std::fs::remove_dir_all(&directory)?;
    let [one, eight] = times?.map(|times| Summary::of(&times).median);
    Ok(format!(
        "The disks answer each request after {latency}: a direct read of 4 KiB took {one:.2} ms, the slowest of eight at once {eight:.2} ms."
    ))
}

fn reads(binaries: &Binaries, latency: Latency, directory: &Path) -> io::Result<[Vec<f64>; 2]> {
    let _delayed = DelayedFile::make(binaries, &directory.join("disk.img"), latency)?;
    let device = LoopDevice::make(directory, "disk", 1 << 30)?;
    let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let disk = File::options().read(true).custom_flags(direct).open(device.node())?;
    let slowest = |readers: u64| {
        std::thread::scope(|scope| {
            let begin = |at| {
                scope.spawn({
                    let disk = &disk;
                    move || read(disk, at * (64 << 20))
                })
            };
            let readers: Vec<_> = (0..readers).map(begin).collect();
            readers.into_iter().try_fold(0.0, |slowest: f64, reader| {
                let took = reader.join().unwrap_or_else(|_| Err(io::Error::other("panicked")));
                Ok(slowest.max(took?.as_secs_f64() * 1e3))
            })
        })
    };
    let all = |readers| (0..50).map(|_| slowest(readers)).collect::<io::Result<Vec<f64>>>();
    Ok([all(1)?, all(8)?])
}

/// Returns the time of reading 4 KiB at `offset`, into memory that is aligned for direct reads.
fn read(disk: &File, offset: u64) -> io::Result<Duration> {
    let mut memory = [0; 8192];
    let start = memory.as_ptr().align_offset(4096);
    let began = Instant::now();
    disk.read_exact_at(&mut memory[start..start + 4096], offset)?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_shown_as_it_was_given() {
        for text in ["0ms", "0.05ms", "0.5ms", "1ms", "1000ms"] {
            assert_eq!(
                text.parse::<Latency>().map(|latency| latency.to_string()).as_deref(),
                Ok(text)
            );
        }
        for text in ["", "1", "1s", "-1ms", "1001ms", "NaNms"] {
            assert!(text.parse::<Latency>().is_err(), "{text}");
        }
    }
}
