//! Options of a new file system: the rows of `format-options.toml`, and the check of given options.

use ebs_csi_wire::{FormatOption, FsType};

/// A row of `format-options.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionRow {
    /// The key of a StorageClass.
    pub key: &'static str,
    /// The key in the volume context: `key` in lower case.
    pub context_key: &'static str,
    /// The number that identifies the option between processes.
    pub number: u32,
    /// What the option sets, a sentence for users.
    pub about: &'static str,
    /// What applies without the option, for users.
    pub default: &'static str,
    /// What the Go driver (v1.64) does differently, for users; empty when nothing.
    pub go_driver: &'static str,
    /// What a value looks like.
    pub kind: OptionKind,
    /// A value that all file systems of the row accept; 1 for a switch.
    pub example: u64,
    /// The key of a switch without which the option is refused.
    pub requires: Option<&'static str>,
    /// Whose setting the option is.
    pub given_by: GivenBy,
    /// How each tool takes the option.
    pub on: &'static [Support],
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// A number, see [`parse_number`].
    Number,
    /// `true` or `false`.
    Switch,
}

/// Whose setting an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBy {
    /// A StorageClass has it as a parameter.
    StorageClass,
    /// The node-agent's flag `--legacy-xfs`, so it says nothing about the volume: file systems
    /// without the option ignore it.
    LegacyXfsFlag,
}

/// How one tool takes an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// The file systems that the tool makes with the option.
    pub file_systems: &'static [FsType],
    /// The accepted numbers; `None` for a switch.
    pub range: Option<Range>,
    /// Flags, each with its value; `{value}` marks the number.
    pub arguments: &'static [(&'static str, &'static str)],
    /// Who says so.
    pub source: &'static str,
    /// Words of one line that dumpe2fs or xfs_info prints about a file system of 512 MiB that was
    /// made with the example.
    pub shown: &'static str,
}

/// The numbers that a tool accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least number.
    pub least: u64,
    /// The greatest number.
    pub most: u64,
    /// Only powers of two.
    pub power_of_two: bool,
    /// The number is at most the size of a block divided by this.
    pub block_parts: Option<u64>,
    /// The range in words.
    pub words: &'static str,
}

mod compiled {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/format_options.rs"));
}

/// Every row, in the order of the numbers.
pub const ROWS: &[OptionRow] = compiled::ROWS;

/// The tools' block size for a volume of 1 GiB or more.
const DEFAULT_BLOCK_SIZE: u64 = 4096;

/// Returns the row of a key as a StorageClass writes it.
pub fn find(key: &str) -> Option<&'static OptionRow> {
    ROWS.iter().find(|row| row.key == key)
}

/// Returns the rows whose options a StorageClass gives.
pub fn storage_class_rows() -> impl Iterator<Item = &'static OptionRow> {
    ROWS.iter().filter(|row| row.given_by == GivenBy::StorageClass)
}

/// Parses a number with an optional suffix k, m or g for the powers of 1024 that the tools know;
/// `None` for zero and for everything else.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|value| *value > 0)
}

impl OptionRow {
    /// Returns the option with a value, 1 for a switch.
    pub const fn with(&self, value: u64) -> FormatOption {
        FormatOption { number: self.number, value }
    }

    /// Returns how the tool that makes a file system takes the option.
    pub fn on(&self, fs: FsType) -> Option<&'static Support> {
        self.on.iter().find(|support| support.file_systems.contains(&fs))
    }

    fn check(&self, value: u64, fs: FsType, all: &FormatOptions) -> Result<(), FormatError> {
        let key = self.key;
        if let Some(switch) = self.requires.filter(|switch| all.value(switch) == 0) {
            return Err(FormatError::Requires { key, switch });
        }
        let Some(support) = self.on(fs) else {
            return match self.given_by {
                GivenBy::StorageClass => Err(FormatError::NotOffered { key, fs }),
                GivenBy::LegacyXfsFlag => Ok(()),
            };
        };
        let (accepted, range) = match &support.range {
            Some(range) => (range.contains(value, all.block_size()), range.words),
            None => (value == 1, "true or false"),
        };
        if accepted { Ok(()) } else { Err(FormatError::OutOfRange { key, given: value, range }) }
    }
}

impl Range {
    fn contains(&self, value: u64, block_size: Option<u64>) -> bool {
        let block = block_size.unwrap_or(DEFAULT_BLOCK_SIZE);
        let most = self.block_parts.map_or(self.most, |parts| self.most.min(block / parts));
        (self.least..=most).contains(&value) && (!self.power_of_two || value.is_power_of_two())
    }
}

/// How to make a file system; an option that is not given leaves the choice to the tool. The file
/// system of [`check`](Self::check) has every option, and every number is within its tool's range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FormatOptions([u64; ROWS.len()]);

impl FormatOptions {
    /// Checks options against the rows. The value 0 is as if the option were not given. Fails with
    /// [`FormatError`] of the first option that `fs` does not have, or not with this value.
    pub fn check(given: &[FormatOption], fs: FsType) -> Result<Self, FormatError> {
        let is_known = |option: &&FormatOption| ROWS.iter().any(|row| row.number == option.number);
        if let Some(unknown) = given.iter().find(|option| !is_known(option)) {
            return Err(FormatError::Unknown { number: unknown.number });
        }
        let mut checked = Self::default();
        for (row, value) in ROWS.iter().zip(&mut checked.0) {
            let mut values = given.iter().filter(|option| option.number == row.number);
            *value = values.next().map_or(0, |option| option.value);
            if values.next().is_some() {
                return Err(FormatError::GivenTwice { key: row.key });
            }
        }
        for (row, value) in checked.given() {
            row.check(value, fs, &checked)?;
        }
        Ok(checked)
    }

    /// Returns the given options, as they are on the wire.
    pub fn to_wire(&self) -> Vec<FormatOption> {
        self.given().map(|(row, value)| row.with(value)).collect()
    }

    /// Returns the size of a block, in bytes, if it is given.
    pub fn block_size(&self) -> Option<u64> {
        Some(self.value("blockSize")).filter(|size| *size != 0)
    }

    /// Returns each flag of the tool that makes the file system, with its value.
    pub(crate) fn arguments(&self, fs: FsType) -> impl Iterator<Item = String> {
        let supports = self.given().filter_map(move |(row, value)| Some((row.on(fs)?, value)));
        supports.flat_map(|(support, value)| {
            support.arguments.iter().flat_map(move |(flag, pattern)| {
                [(*flag).to_owned(), pattern.replace("{value}", &value.to_string())]
            })
        })
    }

    fn given(&self) -> impl Iterator<Item = (&'static OptionRow, u64)> {
        ROWS.iter().zip(self.0).filter(|(_, value)| *value != 0)
    }

    fn value(&self, key: &str) -> u64 {
        self.given().find(|(row, _)| row.key == key).map_or(0, |(_, value)| value)
    }
}

/// An option that a file system does not have, or not with the given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A number that the tool would refuse.
    #[error("{key} is {given}, it must be {range}")]
    OutOfRange {
        /// The StorageClass key.
        key: &'static str,
        /// The given number.
        given: u64,
        /// The range, in words.
        range: &'static str,
    },
    /// An option without the switch that it requires.
    #[error("{key} needs {switch} to be true")]
    Requires {
        /// The StorageClass key.
        key: &'static str,
        /// The key of the switch.
        switch: &'static str,
    },
    /// The file system has no such option.
    #[error("{key} is not an option of {fs}: leave it out or choose another file system")]
    NotOffered {
        /// The StorageClass key.
        key: &'static str,
        /// The requested file system.
        fs: FsType,
    },
    /// No row has this number.
    #[error("format option {number} is unknown")]
    Unknown {
        /// The number.
        number: u32,
    },
    /// Two values of one option.
    #[error("{key} is given twice")]
    GivenTwice {
        /// The StorageClass key.
        key: &'static str,
    },
}
