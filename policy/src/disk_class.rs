//! Which disks of a machine can be volumes, and what identifies such a disk.

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

/// Model that EC2 gives to EBS disks (EC2 page "EBS and NVMe").
pub const EBS_MODEL: &str = "Amazon Elastic Block Store";
/// Model of the NVMe controller that QEMU emulates.
const QEMU_MODEL: &str = "QEMU NVMe Ctrl";
/// What the kernel's name for a virtio device of the type block begins with (`modalias`); the
/// vendor follows, and depends on the transport.
const VIRTIO_BLOCK: &str = "virtio:d00000002v";

impl DiskClass {
    /// Returns whether `name` is a kernel name of a whole disk of this class: `nvme1n1`, `vdb`,
    /// `loop7`.
    #[must_use]
    pub fn is_disk(self, name: &str) -> bool {
        let numbers =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let nvme = || {
            name.strip_prefix("nvme")
                .and_then(|rest| rest.split_once('n'))
                .is_some_and(|(controller, namespace)| numbers(controller) && numbers(namespace))
        };
        match self {
            Self::Ebs => nvme(),
            Self::Guest => {
                let virtio = name.strip_prefix("vd").is_some_and(|rest| {
                    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase())
                });
                virtio || nvme()
            }
            Self::LoopFile => name.strip_prefix("loop").is_some_and(numbers),
        }
    }

    /// Returns whether the serial of an NVMe disk of this model is a volume's id.
    #[must_use]
    pub fn accepts_nvme_model(self, model: &str) -> bool {
        match self {
            Self::Ebs => model == EBS_MODEL,
            Self::Guest => model == EBS_MODEL || model == QEMU_MODEL,
            Self::LoopFile => false,
        }
    }

    /// Returns whether the serial of the disk with this `modalias` in sysfs is a volume's id.
    #[must_use]
    pub fn accepts_virtio(self, modalias: &str) -> bool {
        self == Self::Guest && modalias.starts_with(VIRTIO_BLOCK)
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
        let block = "virtio:d00000002v00001AF4";
        let network = "virtio:d00000001v00001AF4";
        for (class, ebs, emulated) in [
            (DiskClass::Ebs, true, false),
            (DiskClass::Guest, true, true),
            (DiskClass::LoopFile, false, false),
        ] {
            assert_eq!(class.accepts_nvme_model(EBS_MODEL), ebs, "{class:?}");
            assert_eq!(class.accepts_nvme_model(QEMU_MODEL), emulated, "{class:?}");
            assert_eq!(class.accepts_virtio(block), emulated, "{class:?}");
            assert!(!class.accepts_virtio(network), "{class:?}");
            let instance_store = "Amazon EC2 NVMe Instance Storage";
            assert!(!class.accepts_nvme_model(instance_store), "{class:?}");
        }
    }
}
