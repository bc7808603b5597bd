//! The attachment slots that are taken now, as sysfs shows it: EBS disks that are not this
//! driver's, network interfaces, and devices that belong to the instance itself.
//!
//! The slots are read again for each answer of NodeGetInfo, so that the count includes attachments
//! and detachments that bypass the driver.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_proto::lock;
use ebs_csi_wire::VolumeId;

use crate::facts::count;
use crate::facts::dmi::line;

/// Where the kernel shows its devices.
pub(crate) const SYSFS: &str = "/sys";
/// Model of other NVMe controllers (EC2 User Guide, "Amazon EBS volumes and NVMe").
const INSTANCE_STORE_MODEL: &str = "Amazon EC2 NVMe Instance Storage";
/// PCI vendor and devices of Elastic Network Adapters (the kernel's ena driver).
const AMAZON: &str = "0x1d0f";
const ENA: [&str; 4] = ["0x0ec2", "0x1ec2", "0xec20", "0xec21"];
/// PCI vendors of graphics accelerators that take a slot: NVIDIA, AMD.
const ACCELERATOR_VENDORS: [&str; 2] = ["0x10de", "0x1002"];
/// PCI class of display and 3D controllers.
const DISPLAY: &str = "0x03";
/// A disk that was attached for this driver is staged soon; a disk that is not held after this time
/// is not the driver's.
const FOREIGN_AFTER: Duration = Duration::from_secs(300);

/// Taken slots, where sysfs shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenSlots {
    /// EBS volumes that this driver did not stage or publish, including the root volume; `None`
    /// when sysfs shows no EBS disk or the driver's own disks are not known.
    pub foreign_volumes: Option<u32>,
    /// Network interfaces, including the primary one; `None` when sysfs shows none.
    pub network_interfaces: Option<u32>,
    /// Instance store disks and graphics accelerators.
    pub local_devices: u32,
}

/// The instance's devices, and the disks that are the driver's.
#[derive(Debug)]
pub struct Attachments {
    sysfs: PathBuf,
    disks: Mutex<Disks>,
}

#[derive(Debug, Default)]
struct Disks {
    /// The serials of the disks that were attached before the driver could request any.
    at_start: HashSet<String>,
    /// The disks that this driver has staged or published since they appeared.
    own: HashSet<String>,
    /// The time when each disk was first seen.
    since: HashMap<String, Instant>,
    /// The list of held disks was known at least once.
    held_known: bool,
}

impl Attachments {
    /// Reads the disks for the first time: a disk that is present now and never held later is not
    /// the driver's.
    pub fn new(sysfs: impl Into<PathBuf>) -> Self {
        let sysfs = sysfs.into();
        let disks = Disks { at_start: ebs_disks(&sysfs), ..Disks::default() };
        Self { sysfs, disks: Mutex::new(disks) }
    }

    /// Returns whether sysfs shows an EBS disk: otherwise the list of held disks does not matter.
    pub fn shows_disks(&self) -> bool {
        !ebs_disks(&self.sysfs).is_empty()
    }

    /// Returns the taken slots. `held` are the volumes that this driver has staged or published;
    /// `None` when they are not known.
    pub fn taken(&self, held: Option<&[VolumeId]>, now: Instant) -> TakenSlots {
        let (interfaces, accelerators) = pci_devices(&self.sysfs);
        let instance_store = count(serials(&self.sysfs, INSTANCE_STORE_MODEL));
        TakenSlots {
            foreign_volumes: self.foreign(held, now),
            network_interfaces: (interfaces > 0).then_some(interfaces),
            local_devices: instance_store.saturating_add(accelerators),
        }
    }

    fn foreign(&self, held: Option<&[VolumeId]>, now: Instant) -> Option<u32> {
        let present = ebs_disks(&self.sysfs);
        let mut disks = lock(&self.disks);
        // A detached disk is forgotten: when its serial returns, it counts as a new disk.
        disks.at_start.retain(|serial| present.contains(serial));
        disks.own.retain(|serial| present.contains(serial));
        disks.since.retain(|serial, _| present.contains(serial));
        for serial in &present {
            disks.since.entry(serial.clone()).or_insert(now);
        }
        if let Some(held) = held {
            disks.held_known = true;
            let held = held.iter().map(VolumeId::serial);
            disks.own.extend(held.filter(|serial| present.contains(serial)));
        }
        if present.is_empty() || !disks.held_known {
            return None;
        }
        let foreign = present.iter().filter(|serial| {
            let first = disks.since.get(*serial).copied().unwrap_or(now);
            let is_old = now.saturating_duration_since(first) >= FOREIGN_AFTER;
            !disks.own.contains(*serial) && (is_old || disks.at_start.contains(*serial))
        });
        Some(count(foreign))
    }
}

fn ebs_disks(sysfs: &Path) -> HashSet<String> {
    serials(sysfs, DiskClass::ebs_model()).collect()
}

/// Returns the serials of the NVMe controllers of one model. Leaves out a controller that
/// disappears while it is read.
fn serials(sysfs: &Path, model: &'static str) -> impl Iterator<Item = String> + use<> {
    entries(&sysfs.join("class/nvme"))
        .filter(move |controller| line(&controller.join("model")).as_deref() == Some(model))
        .filter_map(|controller| line(&controller.join("serial")))
        .map(|serial| serial.replace('-', ""))
}

/// Returns the numbers of network interfaces and graphics accelerators.
fn pci_devices(sysfs: &Path) -> (u32, u32) {
    let (mut interfaces, mut accelerators) = (0, 0);
    for device in entries(&sysfs.join("bus/pci/devices")) {
        let read = |name: &str| line(&device.join(name)).unwrap_or_default();
        let vendor = read("vendor");
        if vendor == AMAZON && ENA.contains(&read("device").as_str()) {
            interfaces += 1;
        } else if ACCELERATOR_VENDORS.contains(&vendor.as_str())
            && read("class").starts_with(DISPLAY)
        {
            accelerators += 1;
        }
    }
    (interfaces, accelerators)
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs of plain files. The kernel's sysfs has links instead, which are read in the same
    /// way.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn device(&self, place: &str, attributes: &[(&str, &str)]) {
            let directory = self.0.path().join(place);
            std::fs::create_dir_all(&directory).unwrap();
            for (name, value) in attributes {
                std::fs::write(directory.join(name), format!("{value}\n")).unwrap();
            }
        }

        fn nvme(&self, number: u8, model: &str, serial: &str) {
            let place = format!("class/nvme/nvme{number}");
            let (model, serial) = (format!("{model:<40}"), format!("{serial:<20}"));
            self.device(&place, &[("model", &model), ("serial", &serial)]);
        }

        fn ebs(&self, number: u8) {
            self.nvme(number, DiskClass::ebs_model(), &format!("vol0123456789abcdef{number}"));
        }

        fn detach(&self, number: u8) {
            let place = self.0.path().join(format!("class/nvme/nvme{number}"));
            std::fs::remove_dir_all(place).unwrap();
        }

        fn attachments(&self) -> Attachments {
            Attachments::new(self.0.path())
        }
    }

    fn held(numbers: &[u8]) -> Vec<VolumeId> {
        numbers
            .iter()
            .map(|n| VolumeId::parse(&format!("vol-0123456789abcdef{n}")).unwrap())
            .collect()
    }

    #[test]
    fn empty_sysfs_leaves_attachment_counts_at_default() {
        let machine = Machine::new();
        let attachments = machine.attachments();
        assert!(!attachments.shows_disks());
        let taken = attachments.taken(Some(&[]), Instant::now());
        assert_eq!(taken, TakenSlots::default());
    }

    /// A new EBS disk counts as foreign once the driver has not held it for the FOREIGN_AFTER time.
    #[test]
    fn foreign_volume_count_excludes_disks_of_driver() {
        let machine = Machine::new();
        machine.ebs(0);
        machine.ebs(1);
        machine.nvme(7, INSTANCE_STORE_MODEL, "AWS0123456789");
        machine.nvme(8, "Another", "vol0123456789abcdef8");
        let attachments = machine.attachments();
        let start = Instant::now();
        let foreign = |held: Option<&[VolumeId]>, now| attachments.taken(held, now).foreign_volumes;
        assert_eq!(foreign(None, start), None, "nobody knows which are held");
        assert_eq!(foreign(Some(&[]), start), Some(2), "root and a data volume");
        assert_eq!(attachments.taken(None, start).local_devices, 1);

        // A disk that is attached for this driver: before the stage, while it is staged, and
        // between unstage and detach.
        machine.ebs(2);
        assert_eq!(foreign(Some(&[]), start), Some(2));
        assert_eq!(foreign(Some(&held(&[2])), start), Some(2));
        assert_eq!(foreign(Some(&[]), start + FOREIGN_AFTER * 2), Some(2));
        machine.detach(2);
        assert_eq!(foreign(Some(&[]), start), Some(2));

        // A disk that another program attached and that the driver never held.
        machine.ebs(3);
        assert_eq!(foreign(Some(&[]), start), Some(2));
        assert_eq!(foreign(None, start + FOREIGN_AFTER), Some(3));
        machine.detach(3);
        machine.detach(1);
        assert_eq!(foreign(Some(&[]), start), Some(1));
    }

    #[test]
    fn restarted_driver_recognises_its_own_disks() {
        let machine = Machine::new();
        machine.ebs(0);
        machine.ebs(1);
        let taken = machine.attachments().taken(Some(&held(&[1])), Instant::now());
        assert_eq!(taken.foreign_volumes, Some(1));
    }

    #[test]
    fn interfaces_and_accelerators_are_counted_on_the_bus() {
        let machine = Machine::new();
        for (place, vendor, device, class) in [
            ("05.0", "0x1d0f", "0xec20", "0x020000"),
            ("06.0", "0x1d0f", "0xec20", "0x020000"),
            // The second function of a network interface.
            ("07.0", "0x1d0f", "0xefa1", "0x020000"),
            // Every instance has a virtual display, which takes no slot.
            ("03.0", "0x1d0f", "0x1111", "0x030000"),
            ("1e.0", "0x10de", "0x1eb8", "0x030200"),
            ("04.0", "0x1d0f", "0x8061", "0x010802"),
        ] {
            let place = format!("bus/pci/devices/0000:00:{place}");
            machine.device(&place, &[("vendor", vendor), ("device", device), ("class", class)]);
        }
        let taken = machine.attachments().taken(None, Instant::now());
        assert_eq!(taken.network_interfaces, Some(2));
        assert_eq!(taken.local_devices, 1);
    }
}
