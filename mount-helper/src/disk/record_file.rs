//! A file beside the socket with facts about disks, which outlives the process. Each line is an
//! entry that begins with the identifier of its boot; entries of another boot do not count.
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest number of bytes that are read from the file. They hold more attachments than a boot has.
const LONGEST: u64 = 4 << 20;
/// Ends a line that was written completely.
const END: &str = ".";

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
