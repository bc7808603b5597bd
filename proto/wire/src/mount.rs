//! File systems and mount flags.

use std::fmt;

use crate::closed::closed_enum;

/// Bytes in a flag's name.
const NAME_LIMIT: usize = 64;
/// Bytes in a flag's value: fsconfig(2) takes at most 255 and a NUL.
const VALUE_LIMIT: usize = 255;
/// Flags in one mount.
const FLAGS_LIMIT: usize = 32;
/// Bytes of all names and values of one mount, so that a request with two paths still fits a frame.
const TEXT_LIMIT: usize = 4096;

closed_enum! {
    /// A file system that the driver formats, checks, mounts and grows.
    FsType mirrors FsType, "fs_type" {
        /// ext3: made by mke2fs, mounted by the kernel's ext4 code.
        Ext3 => "ext3",
        /// ext4, the default.
        Ext4 => "ext4",
        Xfs => "xfs",
    }
}

impl FsType {
    /// Parses the name in a CSI request or a StorageClass, in any letter case. Fails with
    /// [`MountWordError::FsType`], which names the supported file systems.
    pub fn parse(given: &str) -> Result<Self, MountWordError> {
        Self::ALL
            .iter()
            .copied()
            .find(|fs| fs.as_str().eq_ignore_ascii_case(given))
            .ok_or_else(|| MountWordError::FsType(shortened(given)))
    }
}

/// One mount flag: a name, and a value where the flag takes one. Only its syntax is checked here;
/// the policy decides which flags are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountFlag {
    name: Box<str>,
    value: Option<Box<str>>,
}

/// A file system or mount flag that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountWordError {
    /// Not one of the supported file systems.
    #[error("file system {0:?} is not supported: use ext3, ext4 or xfs")]
    FsType(String),
    /// A flag's name is empty, too long, or not made of lower-case letters, digits, `_`, `-`, `.`.
    #[error("mount flag {0:?}: a name is up to {NAME_LIMIT} lower-case letters, digits, _, - or .")]
    FlagName(String),
    /// A flag's value is empty, too long, or holds anything but printable ASCII without quotes and
    /// backslashes.
    #[error(
        "mount flag {0:?}: a value is up to {VALUE_LIMIT} printable ASCII characters without quotes and backslashes, and not empty"
    )]
    FlagValue(String),
    /// A quote that is not closed, or that does not enclose the whole value.
    #[error("mount flag {0:?}: a quote must enclose the whole value, name=\"value\"")]
    FlagQuote(String),
    /// More than 32 flags.
    #[error("{0} mount flags are given, the limit is {FLAGS_LIMIT}")]
    TooManyFlags(usize),
    /// More than 4096 bytes of names and values.
    #[error("the mount flags have {0} characters, the limit is {TEXT_LIMIT}")]
    TooMuchText(usize),
}

impl MountFlag {
    /// Creates a flag, with or without a value.
    pub fn new(name: &str, value: Option<&str>) -> Result<Self, MountWordError> {
        let plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > NAME_LIMIT || !name.bytes().all(plain) {
            return Err(MountWordError::FlagName(shortened(name)));
        }
        if let Some(value) = value {
            let printable = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'\\');
            if value.is_empty() || value.len() > VALUE_LIMIT || !value.bytes().all(printable) {
                return Err(MountWordError::FlagValue(shortened(&format!("{name}={value}"))));
            }
        }
        Ok(Self { name: name.into(), value: value.map(Into::into) })
    }

    /// Parses the flags of one string of CSI's `mount_flags`: separated by commas, as mount(8)
    /// takes them. A value may be enclosed in double quotes and may then hold commas
    /// (`context="system_u:object_r:t:s0:c1,c2"`). Empty parts are skipped. Fails with
    /// [`MountWordError`] for the first part that is not a flag.
    pub fn parse_all(given: &str) -> Result<Vec<Self>, MountWordError> {
        let mut flags = Vec::new();
        for part in split_outside_quotes(given)? {
            if part.is_empty() {
                continue;
            }
            flags.push(Self::parse_one(part)?);
            Self::check_list(&flags)?;
        }
        Ok(flags)
    }

    fn parse_one(part: &str) -> Result<Self, MountWordError> {
        let Some((name, value)) = part.split_once('=') else {
            return Self::new(part, None);
        };
        let bare = match value.strip_prefix('"') {
            Some(rest) => {
                rest.strip_suffix('"').ok_or_else(|| MountWordError::FlagQuote(shortened(part)))?
            }
            None if value.contains('"') => {
                return Err(MountWordError::FlagQuote(shortened(part)));
            }
            None => value,
        };
        Self::new(name, Some(bare))
    }

    /// Checks that all flags of one mount together are within the protocol's limits: 32 flags, 4096
    /// bytes of names and values. Fails with [`MountWordError::TooManyFlags`] or
    /// [`MountWordError::TooMuchText`].
    pub fn check_list(flags: &[Self]) -> Result<(), MountWordError> {
        if flags.len() > FLAGS_LIMIT {
            return Err(MountWordError::TooManyFlags(flags.len()));
        }
        let text = flags
            .iter()
            .map(|flag| flag.name.len() + flag.value.as_ref().map_or(0, |value| value.len()))
            .sum();
        if text > TEXT_LIMIT {
            return Err(MountWordError::TooMuchText(text));
        }
        Ok(())
    }

    /// Returns the name, for example `noatime` or `commit`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the part after `=`.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

impl fmt::Display for MountFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            None => f.write_str(&self.name),
            Some(value) if value.contains(',') => write!(f, "{}=\"{value}\"", self.name),
            Some(value) => write!(f, "{}={value}", self.name),
        }
    }
}

fn split_outside_quotes(given: &str) -> Result<Vec<&str>, MountWordError> {
    let mut parts = Vec::new();
    let mut quoted = false;
    let mut start = 0;
    for (at, byte) in given.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                parts.push(&given[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if quoted {
        return Err(MountWordError::FlagQuote(shortened(&given[start..])));
    }
    parts.push(&given[start..]);
    Ok(parts)
}

/// Shortens a text to what a message needs to identify it.
fn shortened(given: &str) -> String {
    given.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(given: &str) -> Result<Vec<String>, MountWordError> {
        Ok(MountFlag::parse_all(given)?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn file_systems_are_recognised_in_any_letter_case() {
        assert_eq!(FsType::parse("XFS"), Ok(FsType::Xfs));
        assert_eq!(FsType::parse("ext4"), Ok(FsType::Ext4));
        let error = FsType::parse("ntfs").unwrap_err().to_string();
        assert!(error.contains("ext3, ext4 or xfs"), "{error}");
        assert!(FsType::parse("").is_err());
    }

    #[test]
    fn comma_separated_mount_flags_are_split() {
        assert_eq!(written("noatime,commit=30").unwrap(), ["noatime", "commit=30"]);
        assert_eq!(written("").unwrap(), [""; 0]);
        assert_eq!(written("ro,,nosuid,").unwrap(), ["ro", "nosuid"]);
        assert_eq!(
            written("context=\"system_u:object_r:container_file_t:s0:c1,c2\",ro").unwrap(),
            ["context=\"system_u:object_r:container_file_t:s0:c1,c2\"", "ro"]
        );
        let quoted = MountFlag::parse_all("context=\"a:b\"").unwrap();
        assert_eq!(quoted[0].value(), Some("a:b"));
    }

    #[test]
    fn malformed_mount_flags_are_refused() {
        let long_name = "x".repeat(65);
        let long_value = format!("x={}", "y".repeat(256));
        let many = "ro,".repeat(33);
        for bad in [
            "NOATIME",
            "no atime",
            "noatime;reboot",
            "=value",
            "commit=",
            "commit=\"\"",
            "commit=3 0",
            "context=\"a",
            "context=a\"b\"",
            "context=\"a\"b",
            "x=\\040",
            "x=é",
            "x=a\nb",
            "x=a\0b",
            &long_name,
            &long_value,
            &many,
        ] {
            assert!(MountFlag::parse_all(bad).is_err(), "{bad:?}");
        }
    }
}
