//! The programs that read or change a disk, and their arguments.

use std::time::Duration;

use ebs_csi_wire::FsType;

use crate::format_option::FormatOptions;
use crate::{Value, named_values};

/// The path under which a tool opens its disk: descriptor 3.
pub const DISK: &str = "/proc/self/fd/3";

named_values! {
    /// A program of `tools.toml`, by the name of its row.
    pub ToolId {
        /// Makes ext3 and ext4.
        Mke2fs => "mke2fs",
        /// Makes XFS.
        MkfsXfs => "mkfs-xfs",
        /// Checks ext3 and ext4.
        E2fsck => "e2fsck",
        /// Checks ext3 and ext4 even when they are marked clean.
        E2fsckFull => "e2fsck-full",
        /// Grows unmounted ext3 and ext4.
        Resize2fs => "resize2fs",
        /// Checks XFS without changing it.
        XfsRepair => "xfs-repair",
        /// Checks ext3 and ext4 in full without changing them.
        E2fsckLook => "e2fsck-look",
        /// Repairs every error in ext3 and ext4.
        E2fsckAll => "e2fsck-all",
        /// Checks XFS with many allocation groups without changing it.
        XfsRepairMany => "xfs-repair-many",
        /// Looks whether the log of XFS is empty.
        XfsRepairLog => "xfs-repair-log",
    }
}

/// The purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Make a file system.
    Format,
    /// Check one.
    Check,
    /// Grow one.
    Grow,
}

/// What a program may do with the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAccess {
    /// Read it.
    ReadOnly,
    /// Read and write it.
    ReadWrite,
}

/// A row of `tools.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The name of the row.
    pub key: &'static str,
    /// The program.
    pub path: &'static str,
    /// What the program does.
    pub about: &'static str,
    /// The file systems that the program supports.
    pub file_systems: &'static [FsType],
    /// The program's purpose.
    pub purpose: Purpose,
    /// What the program may do with the disk.
    pub device: DeviceAccess,
    /// How long the program may run.
    pub deadline: Duration,
    /// RLIMIT_AS, in bytes.
    pub address_space: u64,
    /// RLIMIT_DATA, in bytes.
    pub data: u64,
    /// RLIMIT_STACK, in bytes, which is also the size of a thread's stack.
    pub stack: u64,
    /// Commands of ioctl(2) that are answered with success without being executed.
    pub pretended: &'static [Value],
    /// Flags whose values are lists with commas, so that each such flag comes once.
    pub lists: &'static [&'static str],
    /// The arguments before the format options; `{…}` marks a value.
    pub arguments: &'static [&'static str],
    /// The last arguments.
    pub tail: &'static [&'static str],
    /// The exit statuses that have a meaning.
    pub exits: &'static [Exit],
    /// Words that the program says about a file system with a feature that it does not know.
    pub unknown_feature: Option<&'static str>,
    /// The reason for this command line.
    pub why: &'static str,
}

/// An exit status with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The status.
    pub status: u8,
    /// What it means.
    pub meaning: Meaning,
}

/// The meaning of an exit status. A status without a row means that the tool failed and nothing is
/// known about the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The tool did its work.
    Done,
    /// The file system is clean.
    Clean,
    /// The file system was repaired, and is clean now.
    Repaired,
    /// The file system has errors that need a person.
    Uncorrectable,
    /// The log has to be replayed, and was not checked further.
    Unreplayed,
}

/// The checked values that replace `{…}`.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// The file system to make, check or grow.
    pub fs: FsType,
    /// The options of a new file system.
    pub format: &'a FormatOptions,
    /// The identifier of a new file system.
    pub uuid: [u8; 16],
}

mod compiled {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/tools.rs"));
}

/// Every row.
pub const TOOLS: &[Tool] = compiled::TOOLS;

impl ToolId {
    /// Returns the number that identifies the program between processes.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the program with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|id| id.number() == number)
    }

    /// Returns the program that makes a file system.
    pub const fn formats(fs: FsType) -> Self {
        match fs {
            FsType::Ext3 | FsType::Ext4 => Self::Mke2fs,
            FsType::Xfs => Self::MkfsXfs,
        }
    }

    /// Returns the program that checks an XFS with this number of allocation groups.
    pub const fn checks_xfs(groups: u32) -> Self {
        if groups <= 64 { Self::XfsRepair } else { Self::XfsRepairMany }
    }

    /// Returns the row. Returns `None` only when the enum and `tools.toml` disagree, which a test
    /// excludes.
    pub fn tool(self) -> Option<&'static Tool> {
        TOOLS.iter().find(|tool| tool.key == self.as_str())
    }
}

impl Tool {
    /// Returns the meaning of an exit status. `None` means that the tool failed and nothing is
    /// known about the disk.
    #[must_use]
    pub fn meaning(&self, status: u8) -> Option<Meaning> {
        self.exits.iter().find(|exit| exit.status == status).map(|exit| exit.meaning)
    }

    /// Returns whether the end of the program's output says that the file system has a feature that
    /// the program does not know. The exit status then says nothing about the file system.
    #[must_use]
    pub fn lacks_feature(&self, said: &str) -> bool {
        self.unknown_feature.is_some_and(|words| said.contains(words))
    }

    /// Returns the program's path and its arguments.
    #[must_use]
    pub fn command_line(&self, given: &Arguments<'_>) -> Vec<String> {
        let fill =
            |words: &'static [&'static str]| words.iter().map(|word| fill_placeholder(word, given));
        // A checker's arguments do not depend on how the file system was made.
        let options = (self.purpose == Purpose::Format).then(|| given.format.arguments(given.fs));
        let words = std::iter::once(self.path.to_owned())
            .chain(fill(self.arguments))
            .chain(options.into_iter().flatten())
            .chain(fill(self.tail));
        self.join_lists(words)
    }

    /// Joins the values of a flag that occurs more than once, at its first place: mke2fs ignores
    /// all but the last `-E`.
    fn join_lists(&self, mut words: impl Iterator<Item = String>) -> Vec<String> {
        let mut line: Vec<String> = Vec::new();
        while let Some(word) = words.next() {
            let flag = self.lists.contains(&word.as_str());
            let earlier = line.iter().position(|earlier| flag && *earlier == word);
            match earlier.and_then(|at| line.get_mut(at + 1)) {
                Some(list) => {
                    list.push(',');
                    list.extend(words.next());
                }
                None => line.push(word),
            }
        }
        line
    }
}

fn fill_placeholder(argument: &str, given: &Arguments<'_>) -> String {
    // A placeholder occurs at most once in an argument, and no value contains a brace.
    let values: [(&str, &dyn Fn() -> String); 3] = [
        ("{disk}", &|| DISK.to_owned()),
        ("{fs}", &|| given.fs.as_str().to_owned()),
        ("{uuid}", &|| uuid_text(given.uuid)),
    ];
    values
        .iter()
        .find(|(name, _)| argument.contains(name))
        .map_or_else(|| argument.to_owned(), |(name, value)| argument.replace(name, &value()))
}

/// Returns the usual form with four hyphens.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
