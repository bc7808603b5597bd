//! The supervisor's end of the pipe that is the standard error of the other processes. Their lines
//! go on to the helper's standard error, but for those beyond a limit.
//!
//! Whoever causes an event very often cannot fill the node's log: each event of a process has a
//! token bucket, with a limit of lines at once and a rate of lines per second. Another line counts
//! the lines that were not written.
use crate::{channel, journal};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};
use rustix::stdio::stderr;
use std::time::{Duration, Instant};

/// Number of bytes that are read, or written, in one turn: a pipe that poll(2) reports as writable
/// takes as many at once.
const CHUNK: usize = libc::PIPE_BUF;
/// Largest number of chunks in [`Collector::drain`], more than a pipe holds. A process that goes on
/// writing must not keep the supervisor.
const MOST_DRAINED: usize = 512;
/// Largest number of token buckets, more than there are events: a compromised process may invent
/// some.
const MOST_BUCKETS: usize = 256;
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The lines on their way.
#[derive(Debug)]
pub struct Collector {
    /// `None` when no process can write to the pipe any more.
    pipe: Option<OwnedFd>,
    /// The beginning of a line of which the rest was not read yet.
    begun: Vec<u8>,
    /// What goes to standard error next.
    unwritten: Vec<u8>,
    buckets: Vec<Bucket>,
    report_at: Instant,
}

impl Collector {
    /// Creates a collector for this reading end of a pipe.
    pub fn new(pipe: OwnedFd) -> Self {
        Self {
            pipe: Some(pipe),
            begun: Vec::new(),
            unwritten: Vec::new(),
            buckets: Vec::new(),
            report_at: Instant::now() + REPORT_INTERVAL,
        }
    }

    /// Returns the event at which the next [`Collector::turn`] does not wait. The supervisor never
    /// waits for a standard error that takes nothing.
    pub(crate) fn awaited_event(&self) -> Option<PollFd<'_>> {
        if self.unwritten.is_empty() {
            self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN))
        } else {
            Some(PollFd::from_borrowed_fd(stderr(), PollFlags::OUT))
        }
    }

    /// Reads or writes at most [`CHUNK`] bytes.
    pub(crate) fn turn(&mut self) {
        if self.unwritten.is_empty() { self.read() } else { self.write() }
    }

    /// Returns when lines that were not written are to be counted.
    pub(crate) fn report_at(&self) -> Option<Instant> {
        self.buckets.iter().any(|bucket| bucket.suppressed > 0).then_some(self.report_at)
    }

    /// Counts the lines that were not written, when it is time.
    pub(crate) fn report_when_due(&mut self) {
        if self.report_at <= Instant::now() {
            self.report_at = Instant::now() + REPORT_INTERVAL;
            self.report();
        }
    }

    /// Passes on what is in the pipe now.
    pub(crate) fn drain(&mut self) {
        for _ in 0..MOST_DRAINED {
            while !self.unwritten.is_empty() {
                self.write();
            }
            let is_readable = |pipe| channel::is_readable(pipe, Duration::ZERO).unwrap_or(false);
            if !self.pipe.as_ref().is_some_and(is_readable) {
                break;
            }
            self.read();
        }
    }

    /// Passes on what is in the pipe, and counts the lines that were not written, before the
    /// supervisor ends.
    pub(crate) fn finish(&mut self) {
        self.drain();
        self.report();
        self.drain();
    }

    fn read(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut chunk = [0; CHUNK];
        match read(pipe, &mut chunk) {
            Ok(0) => self.pipe = None,
            Ok(length) => self.begun.extend_from_slice(&chunk[..length]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.pipe = None,
        }
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            self.pass_on(&line);
        }
        // No process of the helper begins a line that is longer, or ends within a line.
        if self.begun.len() >= CHUNK || self.pipe.is_none() && !self.begun.is_empty() {
            let mut line = std::mem::take(&mut self.begun);
            line.push(b'\n');
            self.pass_on(&line);
        }
    }

    fn write(&mut self) {
        let chunk = &self.unwritten[..self.unwritten.len().min(CHUNK)];
        let written = match write(stderr(), chunk) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            // A journal that cannot be written to must not end a mount.
            Err(_) => chunk.len(),
        };
        self.unwritten.drain(..written);
    }

    fn pass_on(&mut self, line: &[u8]) {
        let (process, event) = journal::origin(line).unwrap_or_default();
        let (allowed, suppressed) = self.bucket(process, event).take(Instant::now());
        if suppressed > 0 {
            self.unwritten
                .extend_from_slice(suppressed_line(process, event, suppressed).as_bytes());
        }
        if allowed {
            self.unwritten.extend_from_slice(line);
        }
    }

    /// Returns the bucket of an event. When there are too many, all others share the last one.
    fn bucket(&mut self, process: &str, event: &str) -> &mut Bucket {
        let is_it = |bucket: &Bucket| bucket.process == process && bucket.event == event;
        let known = self.buckets.iter().position(is_it);
        let index = known.unwrap_or_else(|| {
            if self.buckets.len() < MOST_BUCKETS {
                self.buckets.push(Bucket::new(process, event));
            }
            self.buckets.len() - 1
        });
        &mut self.buckets[index]
    }

    fn report(&mut self) {
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.suppressed > 0) {
            let suppressed = std::mem::take(&mut bucket.suppressed);
            let line = suppressed_line(&bucket.process, &bucket.event, suppressed);
            self.unwritten.extend_from_slice(line.as_bytes());
        }
    }
}

fn suppressed_line(process: &str, event: &str, lines: u64) -> String {
    let fields = [("of", event), ("lines", &*lines.to_string())];
    journal::line("warn", process, "suppressed", &fields)
}

/// The token bucket of one event: the lines that may still be written.
#[derive(Debug)]
struct Bucket {
    process: String,
    event: String,
    tokens: u32,
    filled: Instant,
    suppressed: u64,
}

impl Bucket {
    fn new(process: &str, event: &str) -> Self {
        let (process, event) = (process.to_owned(), event.to_owned());
        let mut bucket = Self { process, event, tokens: 0, filled: Instant::now(), suppressed: 0 };
        bucket.tokens = bucket.rate().0;
        bucket
    }

    /// Returns how many lines may be written at once, and how many per second.
    fn rate(&self) -> (u32, u32) {
        if self.event.starts_with("peer-") {
            (50, 1)
        } else {
            // After a restart of kubelet, a full node logs some lines for each volume.
            (2000, 20)
        }
    }

    /// Returns whether a line may be written now, and how many were suppressed since the last line.
    fn take(&mut self, now: Instant) -> (bool, u64) {
        let (most, a_second) = self.rate();
        let passed = now.saturating_duration_since(self.filled).as_secs();
        if passed > 0 {
            let more = u32::try_from(passed).unwrap_or(u32::MAX);
            self.tokens = most.min(self.tokens.saturating_add(more.saturating_mul(a_second)));
            self.filled += Duration::from_secs(passed);
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                (true, std::mem::take(&mut self.suppressed))
            }
            None => {
                self.suppressed += 1;
                (false, 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    fn line(event: &str, number: usize) -> String {
        journal::line("warn", "broker", event, &[("number", &number.to_string())])
    }

    /// Returns what the collector writes next, and forgets it.
    fn taken(collector: &mut Collector) -> String {
        String::from_utf8(std::mem::take(&mut collector.unwritten)).expect("text")
    }

    #[test]
    fn lines_pass_whole_and_in_order() {
        let (reader, writer) = pipe().expect("pipe");
        let mut collector = Collector::new(reader);
        let lines: String = (0..100).map(|number| line("operation", number)).collect();
        let mut passed = String::new();
        for part in lines.as_bytes().chunks(1000) {
            write(&writer, part).expect("write");
            collector.turn();
            passed += &taken(&mut collector);
        }
        assert_eq!(passed, lines);
        // What a process writes that does not end in its own way.
        write(&writer, b"free(): invalid pointer").expect("write");
        collector.turn();
        assert!(collector.unwritten.is_empty() && collector.pipe.is_some());
        drop(writer);
        collector.turn();
        assert_eq!(taken(&mut collector), "free(): invalid pointer\n");
        assert!(collector.awaited_event().is_none());
    }

    #[test]
    fn suppressed_lines_are_counted_by_event() {
        let (reader, writer) = pipe().expect("pipe");
        let mut collector = Collector::new(reader);
        for number in 0..60 {
            write(&writer, line("peer-cut-off", number).as_bytes()).expect("write");
        }
        write(&writer, line("operation", 0).as_bytes()).expect("write");
        assert_eq!(collector.report_at(), None);
        while channel::is_readable(collector.pipe.as_ref().unwrap(), Duration::ZERO).unwrap() {
            collector.read();
        }
        assert!(collector.report_at().is_some());
        collector.report();
        let passed = taken(&mut collector);
        assert_eq!(passed.matches(" broker peer-cut-off ").count(), 50);
        assert_eq!(passed.matches(" broker operation ").count(), 1);
        assert!(passed.ends_with(" warn broker suppressed of=peer-cut-off lines=10\n"), "{passed}");
        assert_eq!(collector.report_at(), None);
    }

    #[test]
    fn invented_events_share_the_last_bucket() {
        let (reader, _writer) = pipe().expect("pipe");
        let mut collector = Collector::new(reader);
        for number in 0..10 * MOST_BUCKETS {
            collector.pass_on(line(&format!("invented-{number}"), 0).as_bytes());
        }
        assert_eq!(collector.buckets.len(), MOST_BUCKETS);
        assert!(collector.report_at().is_some());
    }

    #[test]
    fn each_turn_reads_and_writes_little() {
        let (reader, writer) = pipe().expect("pipe");
        let mut collector = Collector::new(reader);
        write(&writer, &[b'x'; 10 * CHUNK]).expect("write");
        collector.turn();
        assert!(collector.unwritten.len() <= CHUNK + 1, "{}", collector.unwritten.len());
    }

    #[test]
    fn rate_limited_lines_are_suppressed_and_counted() {
        let mut bucket = Bucket::new("broker", "peer-cut-off");
        let start = bucket.filled;
        let (most, a_second) = bucket.rate();
        for _ in 0..most {
            assert_eq!(bucket.take(start), (true, 0));
        }
        for _ in 0..1000 {
            assert_eq!(bucket.take(start), (false, 0));
        }
        let later = start + Duration::from_secs(10);
        assert_eq!(bucket.take(later), (true, 1000));
        for _ in 1..10 * a_second {
            assert_eq!(bucket.take(later), (true, 0));
        }
        assert_eq!(bucket.take(later), (false, 0));
        // However long no line is written, the bucket holds at most its initial number of tokens.
        let much_later = later + Duration::from_secs(1_000_000);
        assert!(bucket.take(much_later).0);
        assert_eq!(bucket.tokens, most - 1);
    }
}
