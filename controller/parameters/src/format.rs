//! Formatting keys: passed to the node through the volume context, and checked here before a volume
//! is created that no node could format.

use std::collections::BTreeMap;

use ebs_csi_policy::format_option::{FormatOptions, OptionKind, parse_number, storage_class_rows};
use ebs_csi_proto::Failure;
use ebs_csi_wire::FsType;

/// The formatting keys of a StorageClass in lower case, with their values for the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FormatKeys(BTreeMap<&'static str, String>);

impl FormatKeys {
    /// Stores the value of a lower-case key; returns `Ok(false)` when it is not a formatting key.
    pub(super) fn accept(&mut self, key: &str, value: &str) -> Result<bool, Failure> {
        let Some(row) = storage_class_rows().find(|row| row.context_key == key) else {
            return Ok(false);
        };
        let is_given = match row.kind {
            OptionKind::Switch => super::parse_boolean("parameters", key, value)?,
            OptionKind::Number => !value.is_empty(),
        };
        if is_given {
            number(row.kind, value).ok_or_else(|| {
                Failure::invalid(
                    &format!("parameters.{key}"),
                    format!("{:?} is not a positive number", super::truncate(value)),
                )
            })?;
            self.0.insert(row.context_key, value.to_owned());
        }
        Ok(true)
    }

    /// Checks that the values are within the tools' ranges and that the file system has the
    /// options.
    ///
    /// # Errors
    /// [`Failure::invalid`], naming the key.
    pub fn check_for(&self, fs: FsType) -> Result<(), Failure> {
        let given = storage_class_rows().filter_map(|row| {
            let text = self.0.get(row.context_key)?;
            Some(row.with(number(row.kind, text)?))
        });
        FormatOptions::check(&given.collect::<Vec<_>>(), fs)
            .map(|_| ())
            .map_err(|error| Failure::invalid("parameters", error))
    }

    /// Checks that there is no key: a raw block device is not formatted.
    ///
    /// # Errors
    /// [`Failure::invalid`], naming a key.
    pub fn check_for_block(&self) -> Result<(), Failure> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => Err(Failure::invalid(
                &format!("parameters.{key}"),
                "formats a file system, but the volume is asked for as a raw block device; remove it or use volumeMode Filesystem",
            )),
        }
    }

    /// Returns the entries of the volume context.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(key, value)| (*key, value.as_str()))
    }
}

/// Parses a value of [`FormatKeys`], 1 for a switch, which is there only when it is true.
fn number(kind: OptionKind, text: &str) -> Option<u64> {
    match kind {
        OptionKind::Number => parse_number(text),
        OptionKind::Switch => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(entries: &[(&str, &str)]) -> Result<FormatKeys, Failure> {
        let mut keys = FormatKeys::default();
        for (key, value) in entries {
            assert!(keys.accept(key, value)?, "{key}");
        }
        Ok(keys)
    }

    #[test]
    fn file_systems_accept_only_supported_format_keys() {
        // key and value, and whether ext4, ext3 and xfs support it
        for (key, value, supported) in [
            ("blocksize", "4096", [true, true, true]),
            ("inodesize", "512", [true, true, true]),
            ("bytesperinode", "8192", [true, true, false]),
            ("numberofinodes", "1000", [true, true, false]),
            ("ext4bigalloc", "true", [true, false, false]),
            ("ext4encryptionsupport", "true", [true, false, false]),
        ] {
            let keys = keys(&[(key, value)]).unwrap();
            let offered = [FsType::Ext4, FsType::Ext3, FsType::Xfs].map(|fs| keys.check_for(fs));
            assert_eq!(offered.map(|checked| checked.is_ok()), supported, "{key}");
            assert!(keys.check_for_block().is_err(), "{key}");
        }
        for row in storage_class_rows() {
            let example = match row.kind {
                OptionKind::Number => row.example.to_string(),
                OptionKind::Switch => "true".to_owned(),
            };
            let required = row.requires.map(|key| (key.to_ascii_lowercase(), "true".to_owned()));
            let given = required.into_iter().chain([(row.context_key.to_owned(), example)]);
            let given: Vec<_> = given.collect();
            let given: Vec<_> = given.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let keys = keys(&given).unwrap();
            for fs in FsType::ALL.iter().copied() {
                assert_eq!(keys.check_for(fs).is_ok(), row.on(fs).is_some(), "{} on {fs}", row.key);
            }
        }
    }

    #[test]
    fn format_value_that_no_tool_takes_is_refused() {
        for (entries, word) in [
            (&[("blocksize", "-4096")][..], "positive number"),
            (&[("blocksize", "4 k")], "positive number"),
            (&[("blocksize", "4096;reboot")], "positive number"),
            (&[("blocksize", "ä")], "positive number"),
            (&[("blocksize", "0")], "positive number"),
            (&[("blocksize", "3000")], "blockSize is 3000"),
            (&[("blocksize", "131072")], "blockSize is 131072"),
            (&[("bytesperinode", "100")], "bytesPerInode is 100"),
            (&[("ext4clustersize", "16384")], "ext4BigAlloc"),
            (&[("ext4encryptionsupport", "yes")], "neither"),
        ] {
            let checked = keys(entries).and_then(|keys| keys.check_for(FsType::Ext4));
            let failure = checked.unwrap_err();
            assert!(failure.text().contains(word), "{entries:?}: {failure}");
        }
        let cluster = keys(&[("ext4clustersize", "16k"), ("ext4bigalloc", "true")]).unwrap();
        assert_eq!(cluster.check_for(FsType::Ext4), Ok(()));
    }

    #[test]
    fn empty_value_and_unknown_key_are_left_out() {
        let empty = keys(&[("blocksize", ""), ("ext4bigalloc", "")]).unwrap();
        assert_eq!(empty.entries().count(), 0);
        assert_eq!(FormatKeys::default().accept("nosuchkey", "1"), Ok(false));
    }
}
