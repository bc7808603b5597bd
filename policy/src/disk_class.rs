//! Which disks of a machine can be volumes, and what identifies such a disk.

use crate::pattern;

/// Which disks a policy recognises as volumes, besides those of Xen, which have no serial
/// ([`crate::judge::disk_by_name`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskClass {
    /// NVMe disks of EC2's model.
    Ebs,
    /// NVMe disks of EC2's model, and disks that a hypervisor made for its virtual machine: an NVMe
    /// disk that QEMU emulates, and a disk of virtio-blk.
    Guest,
    /// Loop devices alone, by the name of the file behind them.
    LoopFile,
}

/// A row of `disks.toml`: a kind of disk that can be a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRow {
    /// The classes that have the kind.
    pub classes: &'static [DiskClass],
    /// The kernel's name of a whole disk: `#` stands for digits, `@` for lower-case letters.
    pub name: &'static str,
    /// An attribute in the disk's directory in sysfs with its value, by which the kind is known;
    /// `*` at the end of the value stands for anything.
    pub mark: Option<(&'static str, &'static str)>,
    /// The attribute with the volume's id.
    pub id: &'static str,
    /// The reason.
    pub why: &'static str,
}

mod compiled {
    use super::{DiskClass, DiskRow};
    include!(concat!(env!("OUT_DIR"), "/disks.rs"));
}

/// Every row.
pub const DISKS: &[DiskRow] = compiled::DISKS;

impl DiskClass {
    /// Returns the kinds of disks of this class.
    fn kinds(self) -> impl Iterator<Item = &'static DiskRow> {
        DISKS.iter().filter(move |row| row.classes.contains(&self))
    }

    /// Returns whether `name` is a kernel name of a whole disk of this class: `nvme1n1`, `vdb`,
    /// `loop7`.
    #[must_use]
    pub fn is_disk(self, name: &str) -> bool {
        self.kinds().any(|row| pattern::has_form(row.name, name))
    }

    /// Returns the attribute that has the volume's id, of a disk whose attributes `read` returns;
    /// `None` for a disk of another class.
    pub fn id_attribute(self, read: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
        let is_marked = |row: &&DiskRow| {
            row.mark.is_none_or(|(attribute, value)| {
                read(attribute).is_some_and(|found| pattern::matches(value, found.trim()))
            })
        };
        self.kinds().find(is_marked).map(|row| row.id)
    }

    /// Returns the model by which sysfs shows disks of EC2.
    #[must_use]
    pub fn ebs_model() -> &'static str {
        Self::Ebs.kinds().find_map(|row| row.mark).map_or("", |(_, model)| model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [DiskClass; 3] = [DiskClass::Ebs, DiskClass::Guest, DiskClass::LoopFile];

    #[test]
    fn disk_names_belong_to_their_classes() {
        for (name, classes) in [
            ("nvme0n1", &ALL[..2]),
            ("nvme10n2", &ALL[..2]),
            ("vda", &ALL[1..2]),
            ("vdab", &ALL[1..2]),
            ("loop7", &ALL[2..]),
            ("nvme0n1p1", &[]),
            ("vda1", &[]),
            ("vd", &[]),
            ("xvda", &[]),
            ("sda", &[]),
            ("loop-control", &[]),
        ] {
            for class in ALL {
                let expected = classes.contains(&class);
                assert_eq!(class.is_disk(name), expected, "{name} {class:?}");
            }
        }
    }

    #[test]
    fn only_guest_class_accepts_emulated_disks() {
        let (model, modalias) = ("device/model", "device/modalias");
        let (serial, ebs) = (Some("device/serial"), "Amazon Elastic Block Store");
        let none = [None, None];
        for (attribute, value, [of_ebs, of_guest]) in [
            (model, ebs, [serial, serial]),
            (model, "Amazon Elastic Block Store  ", [serial, serial]),
            (model, "Amazon Elastic Block Storage", none),
            (model, "Amazon EC2 NVMe Instance Storage", none),
            (model, "QEMU NVMe Ctrl", [None, serial]),
            (modalias, "virtio:d00000002v00001AF4", [None, Some("serial")]),
            (modalias, "virtio:d00000001v00001AF4", none),
            (modalias, ebs, none),
        ] {
            let read = |name: &str| (name == attribute).then(|| value.to_owned());
            let found = [DiskClass::Ebs, DiskClass::Guest].map(|class| class.id_attribute(read));
            assert_eq!(found, [of_ebs, of_guest], "{attribute} {value}");
        }
        assert_eq!(DiskClass::LoopFile.id_attribute(|_| None), Some("loop/backing_file"));
        assert_eq!(DiskClass::ebs_model(), ebs);
    }
}
