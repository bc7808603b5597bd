//! Formatting keys: passed to the node through the volume context, and checked here before a volume
//! is created that no node could format.

use std::collections::BTreeMap;

use ebs_csi_proto::{AccessType, Capability, Failure};

/// A key, and the file systems that do not support it.
struct Rule {
    key: &'static str,
    is_switch: bool,
    refused_by: &'static [&'static str],
}

/// Every formatting key, as written in the volume context.
const RULES: [Rule; 7] = [
    Rule { key: "blocksize", is_switch: false, refused_by: &["ntfs"] },
    Rule { key: "inodesize", is_switch: false, refused_by: &["ntfs"] },
    Rule { key: "bytesperinode", is_switch: false, refused_by: &["xfs", "ntfs"] },
    Rule { key: "numberofinodes", is_switch: false, refused_by: &["xfs", "ntfs"] },
    Rule { key: "ext4bigalloc", is_switch: true, refused_by: &["ext3", "xfs", "ntfs"] },
    Rule { key: "ext4clustersize", is_switch: false, refused_by: &["ext3", "xfs", "ntfs"] },
    Rule { key: "ext4encryptionsupport", is_switch: true, refused_by: &["ext3", "xfs", "ntfs"] },
];

/// The formatting keys of a StorageClass in lower case, with their values for the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FormatKeys(BTreeMap<&'static str, String>);

impl FormatKeys {
    /// Stores the value of a lower-case key; returns `Ok(false)` when it is not a formatting key.
    ///
    /// # Errors
    /// A value with characters other than letters and digits, or one that is no boolean.
    pub(super) fn accept(&mut self, key: &str, value: &str) -> Result<bool, Failure> {
        let Some(rule) = RULES.iter().find(|rule| rule.key == key) else {
            return Ok(false);
        };
        if rule.is_switch {
            if super::parse_boolean("parameters", key, value)? {
                self.0.insert(rule.key, "true".to_owned());
            }
        } else if value.bytes().all(|b| b.is_ascii_alphanumeric()) {
            if !value.is_empty() {
                self.0.insert(rule.key, value.to_owned());
            }
        } else {
            return Err(Failure::invalid(
                &format!("parameters.{key}"),
                format!("{:?} is not made of letters and digits alone", super::truncate(value)),
            ));
        }
        Ok(true)
    }

    /// Checks the keys against every capability: the keys need a file system that supports them.
    ///
    /// # Errors
    /// [`Failure::invalid`], naming the key and the file system.
    pub(crate) fn check(&self, capabilities: &[Capability]) -> Result<(), Failure> {
        if self.0.contains_key("ext4clustersize") && !self.0.contains_key("ext4bigalloc") {
            return Err(Failure::invalid(
                "parameters.ext4clustersize",
                "needs ext4BigAlloc: \"true\" beside it",
            ));
        }
        for key in self.0.keys() {
            for capability in capabilities {
                let AccessType::Mount { fs_type, .. } = &capability.kind else {
                    return Err(Failure::invalid(
                        &format!("parameters.{key}"),
                        "formats a file system, but the volume is asked for as a raw block device; remove it or use volumeMode Filesystem",
                    ));
                };
                let rule = RULES.iter().find(|rule| rule.key == *key);
                let fs = fs_type.to_ascii_lowercase();
                let known = matches!(fs.as_str(), "" | "ext3" | "ext4" | "xfs" | "ntfs");
                if !known || rule.is_some_and(|rule| rule.refused_by.contains(&fs.as_str())) {
                    return Err(Failure::invalid(
                        &format!("parameters.{key}"),
                        format!(
                            "cannot be used with file system {:?}; remove it or use ext4",
                            super::truncate(&fs)
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the entries of the volume context.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(key, value)| (*key, value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_proto::AccessMode;

    fn mount(fs: &str) -> Capability {
        Capability {
            mode: AccessMode::SingleNodeWriter,
            kind: AccessType::Mount { fs_type: fs.to_owned(), flags: Vec::new() },
        }
    }

    #[test]
    fn file_systems_accept_only_supported_format_keys() {
        // key, and whether ext4, "", ext3, xfs, ntfs and an unknown one support it
        let rows = [
            ("blocksize", [true, true, true, true, false, false]),
            ("inodesize", [true, true, true, true, false, false]),
            ("bytesperinode", [true, true, true, false, false, false]),
            ("numberofinodes", [true, true, true, false, false, false]),
            ("ext4bigalloc", [true, true, false, false, false, false]),
            ("ext4encryptionsupport", [true, true, false, false, false, false]),
        ];
        for (key, supported) in rows {
            let mut keys = FormatKeys::default();
            assert!(keys.accept(key, "true").unwrap());
            for (fs, ok) in ["ext4", "", "ext3", "xfs", "ntfs", "btrfs"].iter().zip(supported) {
                assert_eq!(keys.check(&[mount(fs)]).is_ok(), ok, "{key} {fs}");
            }
            let block = Capability { kind: AccessType::Block, ..mount("") };
            assert!(keys.check(&[mount("ext4"), block]).is_err(), "{key} block");
        }
    }

    #[test]
    fn ext4_cluster_size_needs_bigalloc() {
        let mut keys = FormatKeys::default();
        keys.accept("ext4clustersize", "16384").unwrap();
        let failure = keys.check(&[mount("ext4")]).unwrap_err();
        assert!(failure.text().contains("ext4BigAlloc"), "{failure}");
        keys.accept("ext4bigalloc", "true").unwrap();
        assert!(keys.check(&[mount("ext4")]).is_ok());
    }

    #[test]
    fn format_value_accepts_only_letters_and_digits() {
        let mut keys = FormatKeys::default();
        for bad in ["-4096", "4 k", "4096;reboot", "ä"] {
            assert!(keys.accept("blocksize", bad).is_err(), "{bad}");
        }
        assert!(!keys.accept("nosuchkey", "1").unwrap());
        assert!(keys.accept("ext4encryptionsupport", "yes").is_err());
        assert_eq!(keys.entries().count(), 0);
    }
}
