//! The machine's identity: strings that EC2's firmware passes to the kernel.
//!
//! On Nitro instances the board's asset tag is the instance id and the product name is the instance
//! type.

use std::path::Path;

use ebs_csi_wire::InstanceId;

/// Where the kernel shows the strings.
pub(crate) const DIRECTORY: &str = "/sys/devices/virtual/dmi/id";

/// What the firmware reports of the machine. The kernel shows it until the next boot, so that one
/// read is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) instance: Option<InstanceId>,
    pub(crate) instance_type: Option<String>,
}

impl Machine {
    /// Reads what the kernel shows in this directory.
    pub(crate) fn read(directory: &Path) -> Self {
        let read = |name: &str| line(&directory.join(name));
        Self {
            instance: read("board_asset_tag").and_then(|id| InstanceId::parse(&id).ok()),
            instance_type: read("product_name").filter(|name| is_instance_type(name)),
        }
    }
}

/// Returns whether a text has the form of an instance type: letters, digits and hyphens around one
/// dot.
pub(crate) fn is_instance_type(name: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 64
        && name.split_once('.').is_some_and(|(family, size)| plain(family) && plain(size))
}

/// Returns the text of a short file without the space around it.
pub(crate) fn line(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nitro_firmware_gives_instance_id_and_type() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Machine::read(dir.path()), Machine::default());
        for (tag, product, known) in [
            ("i-0123456789abcdef0\n", "m7i.metal-24xl\n", true),
            ("", "", false),
            ("Not Specified", "HVM domU", false),
            ("i-xyz", "KVM", false),
        ] {
            std::fs::write(dir.path().join("board_asset_tag"), tag).unwrap();
            std::fs::write(dir.path().join("product_name"), product).unwrap();
            let instance = known.then(|| InstanceId::parse(tag.trim()).unwrap());
            let instance_type = known.then(|| product.trim().to_owned());
            assert_eq!(Machine::read(dir.path()), Machine { instance, instance_type }, "{tag}");
        }
    }
}
