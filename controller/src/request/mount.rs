//! The mount that a capability asks for, checked before a volume is created that no node could
//! mount.

use ebs_csi_parameters::FormatKeys;
use ebs_csi_policy::flag;
use ebs_csi_proto::{AccessType, Capability, Failure};
use ebs_csi_wire::FsType;

/// Checks the file system, its format options and the mount options of each capability.
pub(super) fn check(capabilities: &[Capability], keys: &FormatKeys) -> Result<(), Failure> {
    for capability in capabilities {
        match &capability.kind {
            AccessType::Block => keys.check_for_block()?,
            AccessType::Mount { fs_type, flags } => {
                let fs = file_system(fs_type)?;
                keys.check_for(fs)?;
                flag::parse(flags, &[fs], capability.is_read_only()).map_err(|error| {
                    Failure::invalid("volume_capability.mount.mount_flags", error)
                })?;
            }
        }
    }
    Ok(())
}

fn file_system(name: &str) -> Result<FsType, Failure> {
    if name.is_empty() {
        return Ok(FsType::Ext4);
    }
    FsType::parse(name).map_err(|error| Failure::invalid("volume_capability.mount.fs_type", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_proto::AccessMode;

    fn mount(fs: &str, flags: &[&str]) -> Capability {
        Capability {
            mode: AccessMode::SingleNodeWriter,
            kind: AccessType::Mount {
                fs_type: fs.to_owned(),
                flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            },
        }
    }

    #[test]
    fn unmountable_capability_is_refused_with_its_value() {
        for (capability, word) in [
            (mount("ext4", &["noatime,discard", "data=ordered"]), None),
            (mount("", &["noatime"]), None),
            (mount("XFS", &["nouuid"]), None),
            (mount("ext4", &["tls"]), Some("\"tls\"")),
            (mount("", &["noatime,tls"]), Some("\"tls\"")),
            (mount("ext4", &["nouuid"]), Some("\"nouuid\"")),
            (mount("ext4", &["a b"]), Some("a b")),
            (mount("ntfs", &[]), Some("ntfs")),
            (mount("btrfs", &[]), Some("btrfs")),
        ] {
            let checked = check(std::slice::from_ref(&capability), &FormatKeys::default());
            let text = checked.err().map(|failure| failure.text().to_owned());
            assert_eq!(text.is_some(), word.is_some(), "{capability:?}: {text:?}");
            assert!(text.is_none_or(|text| text.contains(word.unwrap_or_default())));
        }
    }
}
