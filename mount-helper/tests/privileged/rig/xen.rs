//! Xen disks: loop devices under the device names that EC2 received, in a simulated `/sys` that
//! shows them as virtual disks of the hypervisor.
use super::loop_device::number;
use super::{Attached, Rig, able, sparse_file};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub(crate) struct Xen {
    // Dropped first, so that the disk is no longer shown when it is detached.
    shown: Shown,
    pub(crate) attached: Attached,
}

/// A disk of this machine that the simulated `/sys` and `/dev` show as a Xen disk.
pub(crate) struct Shown {
    /// The kernel's name of the real disk, `loop7`.
    real: String,
    /// The disk's name in the simulated `/sys`, `xvdba`.
    name: String,
    sys: PathBuf,
    nodes: Vec<PathBuf>,
}

impl std::ops::Deref for Xen {
    type Target = Shown;

    fn deref(&self) -> &Shown {
        &self.shown
    }
}

impl Rig {
    /// Starts a usual helper on a simulated Xen machine, or prints why these tests cannot run.
    pub(crate) fn start_xen() -> Option<Self> {
        Self::start_xen_with(&[])
    }

    /// Starts a helper with these flags likewise. The machine has a disk of its own.
    pub(crate) fn start_xen_with(extra: &[&str]) -> Option<Self> {
        if !able() {
            return None;
        }
        let mut rig = Self::prepared(false);
        for directory in ["block", "dev/block", "devices"] {
            fs::create_dir_all(rig.path("sys").join(directory)).expect("mkdir");
        }
        make_disk(&rig.path("sys"), "xvda", "202:0");
        rig.run(extra);
        Some(rig)
    }

    /// Attaches a disk of `image` under a name. Creates the image when it does not exist.
    pub(crate) fn attach_xen(&self, name: &str, image: &str, bytes: u64) -> Xen {
        let image = self.path("volumes").join(image);
        if !image.exists() {
            sparse_file(&image, bytes);
        }
        let attached = self.attach_image(image);
        let shown = self.show_xen(&attached.name, name);
        Xen { shown, attached }
    }

    /// Shows a disk of this machine under a name.
    pub(crate) fn show_xen(&self, real: &str, name: &str) -> Shown {
        let number = number(&format!("/dev/{real}"));
        let node = self.make_node_called(real, name);
        make_disk(&self.path("sys"), name, &number);
        let shown = Shown {
            real: real.to_owned(),
            name: name.to_owned(),
            sys: self.path("sys"),
            nodes: vec![node],
        };
        shown.look_again();
        shown
    }

    /// Waits until the kernel has found a partition, and shows the partition.
    pub(crate) fn xen_part(&self, disk: &mut Xen, part: u32) {
        self.node_of_part(&disk.attached, part);
        let kernels = format!("{}p{part}", disk.attached.name);
        let name = format!("{}{part}", disk.name);
        let node = self.make_node_called(&kernels, &name);
        disk.shown.nodes.push(node);
        let directory = disk.directory().join(&name);
        fs::create_dir_all(directory.join("holders")).expect("mkdir");
        let number = number(&format!("/dev/{kernels}"));
        for attribute in ["size", "start", "partition"] {
            let from = format!("/sys/block/{}/{kernels}/{attribute}", disk.attached.name);
            fs::copy(from, directory.join(attribute)).expect("copy");
        }
        fs::write(directory.join("dev"), format!("{number}\n")).expect("write");
        fs::write(directory.join("uevent"), format!("DEVNAME={name}\n")).expect("write");
        let target = format!("../../devices/vbd-{0}/block/{0}/{name}", disk.name);
        symlink(target, self.path("sys/dev/block").join(number)).expect("symlink");
    }
}

impl Shown {
    pub(crate) fn directory(&self) -> PathBuf {
        self.sys.join("block").join(&self.name)
    }

    /// Copies the kernel's current values of the real disk: size and sequence number.
    pub(crate) fn look_again(&self) {
        for attribute in ["size", "diskseq"] {
            let from = format!("/sys/block/{}/{attribute}", self.real);
            fs::copy(from, self.directory().join(attribute)).expect("copy");
        }
    }

    /// Simulates in `/sys` that another disk took the same name and number.
    pub(crate) fn swap(&self) {
        let file = self.directory().join("diskseq");
        let text = fs::read_to_string(&file).expect("read");
        let sequence: u64 = text.trim().parse().expect("a number");
        fs::write(file, format!("{}\n", sequence + 1_000_000)).expect("write");
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let links = fs::read_dir(self.sys.join("dev/block")).expect("dev/block");
        let of_it = format!("/{}", self.name);
        for link in links.flatten() {
            if fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().contains(&of_it)) {
                let _ = fs::remove_file(link.path());
            }
        }
        let _ = fs::remove_file(self.directory());
        let _ = fs::remove_dir_all(self.sys.join(format!("devices/vbd-{}", self.name)));
        for node in &self.nodes {
            let _ = fs::remove_file(node);
        }
    }
}

/// Creates a disk with the kernel's layout: `block/NAME` is a link into the device tree, and
/// `device` in that directory is a link upwards.
fn make_disk(sys: &Path, name: &str, number: &str) {
    let bus = sys.join(format!("devices/vbd-{name}"));
    let disk = bus.join("block").join(name);
    fs::create_dir_all(disk.join("holders")).expect("mkdir");
    let write = |path: PathBuf, text: &str| fs::write(path, format!("{text}\n")).expect("write");
    write(bus.join("modalias"), "xen:vbd");
    write(disk.join("dev"), number);
    write(disk.join("uevent"), &format!("DEVNAME={name}"));
    write(disk.join("diskseq"), "1");
    write(disk.join("size"), "0");
    symlink(format!("../../../vbd-{name}"), disk.join("device")).expect("symlink");
    let target = format!("devices/vbd-{name}/block/{name}");
    symlink(format!("../{target}"), sys.join("block").join(name)).expect("symlink");
    symlink(format!("../../{target}"), sys.join("dev/block").join(number)).expect("symlink");
}
