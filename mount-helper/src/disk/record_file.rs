//! A file beside the socket with facts about disks, which outlives the process. Each line is an
//! entry that begins with the identifier of its boot; entries of another boot do not count.
use crate::{journal, lock, sys};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, fstat, fsync, ftruncate, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Largest number of bytes that are read from the file. They hold more attachments than a boot has.
const LONGEST: u64 = 4 << 20;
/// Ends a line that was written completely.
const END: &str = ".";

/// At the end of the second file's name.
const SECOND: &str = ".second";
/// First word of the entry that completes a file, before the file's generation.
const GENERATION: &str = "generation";

/// A record that is shortened while it is kept. Confined, a process can no longer replace a file by
/// another, so the record has two: the entries that count are written to the file that does not
/// count, and the entry with its generation last. The complete file of the higher generation
/// counts.
#[derive(Debug)]
pub(crate) struct RecordFile {
    files: [OwnedFd; 2],
    boot: String,
    longest: usize,
    state: Mutex<RecordState>,
}

#[derive(Debug)]
struct RecordState {
    current: usize,
    generation: u64,
    written: usize,
}

/// The text of an earlier process's record, and its generation.
#[derive(Debug, Default)]
struct Found {
    text: String,
    generation: u64,
}

impl RecordFile {
    /// Continues the record at `path`: `counting` gets the text of an earlier process, and returns
    /// the entries that count. Beyond `longest` bytes the record is shortened. Logs `event` when an
    /// earlier record cannot be read, and when none can be kept.
    pub(crate) fn open(
        path: &Path,
        boot: &str,
        longest: usize,
        event: &'static str,
        counting: impl FnOnce(&str) -> String,
    ) -> Option<Self> {
        let found = Self::find(path, boot);
        let unreadable = found.as_ref().err().copied().filter(|why| *why != Errno::NOENT);
        let found = found.unwrap_or_default();
        let record = Self::start(path, boot, &found, &counting(&found.text), longest);
        for why in unreadable.iter().chain(record.as_ref().err()) {
            let path = path.display().to_string();
            journal::warn(event, &[("file", &path), ("why", &why.to_string())]);
        }
        record.ok()
    }

    /// Reads the record at `path`. The first file may come from a helper that kept only one.
    fn find(path: &Path, boot: &str) -> Result<Found, Errno> {
        let found = |path: &Path| {
            let text = read(path)?;
            let generation = entries(&text, boot).filter_map(|[word, generation, _]| {
                generation.parse().ok().filter(|_| word == GENERATION)
            });
            Ok((generation.max(), text))
        };
        let (generation, text) = found(path)?;
        let first = Found { text, generation: generation.unwrap_or(0) };
        Ok(match found(&beside(path, SECOND)) {
            Ok((Some(generation), text)) if generation > first.generation => {
                Found { text, generation }
            }
            Ok(_) | Err(Errno::NOENT) => first,
            Err(errno) => return Err(errno),
        })
    }

    fn start(
        path: &Path,
        boot: &str,
        found: &Found,
        text: &str,
        longest: usize,
    ) -> Result<Self, Errno> {
        let generation = found.generation + 1;
        let text = complete(boot, text, generation);
        let files = [replace(path, &text)?, replace(&beside(path, SECOND), "")?];
        let state = RecordState { current: 0, generation, written: text.len() };
        Ok(Self { files, boot: boot.to_owned(), longest, state: Mutex::new(state) })
    }

    /// Returns the descriptors of the files.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.files[0].as_fd(), self.files[1].as_fd()]
    }

    /// Appends entries. If the current file is too long, writes those that `counting` returns to
    /// the other file first.
    pub(crate) fn append(
        &self,
        text: &str,
        counting: impl FnOnce() -> String,
    ) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        if state.written > self.longest {
            self.shorten(&mut state, &counting())?;
        }
        append(&self.files[state.current], text)?;
        state.written += text.len();
        Ok(())
    }

    fn shorten(&self, state: &mut RecordState, counting: &str) -> Result<(), Errno> {
        let generation = state.generation + 1;
        let text = complete(&self.boot, counting, generation);
        let other = 1 - state.current;
        ftruncate(&self.files[other], 0)?;
        append(&self.files[other], &text)?;
        fsync(&self.files[other])?;
        *state = RecordState { current: other, generation, written: text.len() };
        Ok(())
    }

    /// Writes the entries to the disk.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        fsync(&self.files[lock(&self.state).current])
    }
}

fn complete(boot: &str, text: &str, generation: u64) -> String {
    format!("{text}{}", line(boot, &format!("{GENERATION} {generation} -")))
}

/// Returns the path of a file that stands beside another one, with this at the end of its name.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Replaces the file at `path` by one with this text, and returns it opened for appending.
pub(crate) fn replace(path: &Path, text: &str) -> Result<OwnedFd, Errno> {
    let new = beside(path, ".new");
    match unlinkat(CWD, &new, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let file = openat(
        CWD,
        &new,
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?;
    if !text.is_empty() {
        append(&file, text)?;
    }
    renameat(CWD, &new, CWD, path)?;
    Ok(file)
}

/// Reads a file that only this program can have written.
pub(crate) fn read(path: &Path) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    let facts = fstat(&file)?;
    let ours = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
        && facts.st_uid == rustix::process::geteuid().as_raw()
        && facts.st_mode & 0o077 == 0
        && facts.st_nlink == 1;
    if !ours {
        return Err(Errno::PERM);
    }
    let mut text = String::new();
    File::from(file).take(LONGEST).read_to_string(&mut text).map_err(|e| sys::errno_of(&e))?;
    Ok(text)
}

/// Formats an entry of three words. The line begins with a newline, so that an incomplete earlier
/// line does not run into it.
pub(crate) fn line(boot: &str, words: &str) -> String {
    format!("\n{boot} {words} {END}\n")
}

/// Returns the words of each complete entry of this boot.
pub(crate) fn entries<'t>(text: &'t str, boot: &str) -> impl Iterator<Item = [&'t str; 3]> {
    text.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            [of, first, second, third, END] if of == boot => Some([first, second, third]),
            _ => None,
        }
    })
}

/// Appends text; an incomplete write is an error.
pub(crate) fn append(file: &OwnedFd, line: &str) -> Result<(), Errno> {
    match rustix::io::write(file, line.as_bytes())? {
        written if written == line.len() => Ok(()),
        _ => Err(Errno::NOSPC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kill leaves of the other file, after each byte that was written to it.
    #[test]
    fn record_shortened_in_part_keeps_all_entries() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("record");
        let (old, new) = (line("boot", "a 1 -"), line("boot", "b 2 -"));
        let start = |found: &Found, text| RecordFile::start(&path, "boot", found, text, 0);
        drop(start(&Found::default(), &old).expect("start"));
        let whole = complete("boot", &old, 2);
        for length in 0..=whole.len() {
            let second = replace(&beside(&path, SECOND), &whole[..length]).expect("second");
            let found = RecordFile::find(&path, "boot").expect("found");
            let is_complete = length >= whole.len() - 1;
            assert_eq!(found.generation, if is_complete { 2 } else { 1 }, "{length}");
            assert!(found.text.contains(&old), "{length}");
            drop(second);
        }
        // Each of the two files gets its turn, and a restart continues with the right one.
        let mut found = RecordFile::find(&path, "boot").expect("found");
        for restart in 0..4 {
            let record = start(&found, &old).expect("start");
            for _ in 0..restart {
                record.append(&new, || old.clone()).expect("append");
            }
            drop(record);
            found = RecordFile::find(&path, "boot").expect("found");
            let kept: Vec<_> = entries(&found.text, "boot").map(|[word, ..]| word).collect();
            let wanted: &[&str] =
                if restart == 0 { &["a", GENERATION] } else { &["a", GENERATION, "b"] };
            assert_eq!(kept, wanted, "{restart}");
        }
    }
}
