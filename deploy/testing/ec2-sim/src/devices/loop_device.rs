//! Loop devices: an attached volume is a real block device.

use super::image::Images;
use super::{remove, statistics_page, sys};
use rustix::fs::{CWD, FileType, Gid, Mode, Uid, mknodat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Volumes as loop devices, with nodes in one device directory per instance. Every method can be
/// repeated: after an error the simulator calls the method again.
#[derive(Debug)]
pub(crate) struct LoopDevices {
    pub(crate) images: Images,
    dev: PathBuf,
    nodes: PathBuf,
    records: LoopRecords,
    disk_gid: u32,
}

/// How many free loop devices other processes may take first before the call fails.
const TRIES: usize = 64;

/// How long copies of several volumes are repeated before the call fails, because something is
/// written during each.
const CUT_TIME: Duration = Duration::from_secs(2);

impl LoopDevices {
    /// Opens the devices of a state directory. Fails without root, without `/dev/loop-control`, and
    /// on a file system mounted `nodev`.
    pub(crate) fn new(state_dir: &Path) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            let why = "loop devices need root: run as root, or use --devices none";
            return Err(io::Error::other(why));
        }
        if rustix::fs::statvfs(state_dir)?.f_flag.contains(rustix::fs::StatVfsMountFlags::NODEV) {
            return Err(io::Error::other(format!(
                "{} is on a file system mounted nodev, where device nodes cannot be opened: choose another --state-dir",
                state_dir.display()
            )));
        }
        control()?;
        let devices = Self {
            images: Images::new(state_dir)?,
            dev: state_dir.join("dev"),
            nodes: state_dir.join("nodes"),
            records: LoopRecords::open(state_dir)?,
            disk_gid: disk_group(),
        };
        std::fs::create_dir_all(&devices.dev)?;
        std::fs::create_dir_all(&devices.nodes)?;
        Ok(devices)
    }

    /// Returns the volume's loop device: the existing one, or a new one.
    fn bind(&mut self, volume: &str) -> io::Result<u32> {
        if let Some(r) = self.records.find(volume) {
            if is_ours(r) {
                return Ok(r.number);
            }
            self.forget(volume)?;
        }
        if self.records.all.iter().any(|r| r.abandoned && !is_ours(r)) {
            self.records.change(|all| all.retain(|r| !r.abandoned || is_ours(r)))?;
        }
        let image = self.images.volume(volume);
        let file = OpenOptions::new().read(true).write(true).open(&image)?;
        let control = control()?;
        for _ in 0..TRIES {
            let number = sys::free_loop(&control)?;
            // The record is written first: a crash in between leaves a record of an unbound device,
            // never a device without a record.
            self.records.change(|all| {
                all.push(LoopRecord {
                    number,
                    volume: volume.to_owned(),
                    image: image.clone(),
                    instances: BTreeMap::new(),
                    abandoned: false,
                });
            })?;
            let bound = open_loop(&self.nodes, number, false)
                .and_then(|device| sys::bind_loop(&device, &file, &image.to_string_lossy()));
            let Err(error) = bound else { return Ok(number) };
            self.forget(volume)?;
            // Another process took the device, or has the device open.
            if !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENXIO)) {
                return Err(error);
            }
        }
        Err(io::Error::other("no free loop device could be had: others took each one first"))
    }

    /// Returns what the kernel has counted of the writes to volumes, or `None` while there are
    /// unfinished ones.
    fn written(&self, members: &[(String, String)]) -> Option<Vec<String>> {
        let devices = members.iter().filter_map(|(volume, _)| self.records.find(volume));
        devices.filter(|record| is_ours(record)).map(|record| writes(record.number)).collect()
    }

    fn forget(&mut self, volume: &str) -> io::Result<()> {
        self.records.change(|all| all.retain(|r| r.volume != volume || r.abandoned))
    }

    /// Creates the block node and the symbolic link in an instance's device directory.
    fn create_nodes(&self, number: u32, instance: &str, name: &str) -> io::Result<()> {
        let dir = self.dev.join(instance);
        std::fs::create_dir_all(&dir)?;
        let node = dir.join(format!("loop{number}"));
        make_node(&node, number)?;
        rustix::fs::chown(&node, Some(Uid::ROOT), Some(Gid::from_raw(self.disk_gid)))?;
        let link = dir.join(short_name(name));
        remove(&link)?;
        std::os::unix::fs::symlink(format!("loop{number}"), link)
    }

    /// Forgets a device that is no longer bound to the volume.
    fn forget_released(
        &mut self,
        record: &LoopRecord,
        instance: &str,
        name: &str,
    ) -> io::Result<()> {
        self.remove_nodes(record.number, instance, name)?;
        remove(&self.nodes.join(format!("loop{}", record.number)))?;
        self.forget(&record.volume)
    }

    fn remove_nodes(&self, number: u32, instance: &str, name: &str) -> io::Result<()> {
        let dir = self.dev.join(instance);
        remove(&dir.join(short_name(name)))?;
        let node = dir.join(format!("loop{number}"));
        remove(&statistics_page::path(&node))?;
        remove(&node)
    }

    pub(crate) fn add_instance(&self, instance: &str) -> io::Result<()> {
        std::fs::create_dir_all(self.dev_dir(instance))
    }

    pub(crate) fn dev_dir(&self, instance: &str) -> PathBuf {
        self.dev.join(instance)
    }

    pub(crate) fn attach(&mut self, volume: &str, instance: &str, name: &str) -> io::Result<()> {
        let number = self.bind(volume)?;
        self.records.change(|all| {
            if let Some(r) = all.iter_mut().find(|r| r.volume == volume && !r.abandoned) {
                r.instances.insert(instance.to_owned(), name.to_owned());
            }
        })?;
        self.create_nodes(number, instance, name)
    }

    /// Removes a volume from an instance. Returns false while the instance holds the device
    /// (mounted, or open), unless `force` is set.
    pub(crate) fn release(
        &mut self,
        volume: &str,
        instance: &str,
        name: &str,
        force: bool,
    ) -> io::Result<bool> {
        let Some(record) = self.records.find(volume).cloned() else { return Ok(true) };
        let number = record.number;
        if record.instances.keys().any(|i| i != instance) {
            // Other instances still have the volume, and the kernel does not tell which of them
            // holds the shared device.
            self.remove_nodes(number, instance, name)?;
            self.records.change_of(number, |r| drop(r.instances.remove(instance)))?;
            return Ok(true);
        }
        if !is_ours(&record) {
            return self.forget_released(&record, instance, name).map(|()| true);
        }
        // An exclusive open fails while the device is mounted or claimed.
        let device = match open_loop(&self.nodes, number, true) {
            Ok(device) => device,
            Err(e) if e.raw_os_error() != Some(libc::EBUSY) => return Err(e),
            Err(_) if !force => return Ok(false),
            Err(_) => open_loop(&self.nodes, number, false)?,
        };
        // Checks again with the device open: before the open, the device's last user may have
        // closed it, and another process may have taken it.
        if !is_ours(&record) {
            return self.forget_released(&record, instance, name).map(|()| true);
        }
        self.remove_nodes(number, instance, name)?;
        sys::clear_loop(&device)?;
        drop(device);
        if backing_file(number).is_some() {
            // Another process has the device open; the kernel clears the device on the last close.
            if force {
                self.records.change_of(number, |r| r.abandoned = true)?;
            }
            return Ok(force);
        }
        self.forget_released(&record, instance, name).map(|()| true)
    }

    /// Copies the bytes of volumes, each to its snapshot: pairs of a volume and a snapshot.
    pub(crate) fn snapshot(&self, members: &[(String, String)]) -> io::Result<()> {
        if self.images.is_subvolume || members.len() < 2 {
            return self.images.snapshot(members);
        }
        let end = Instant::now() + CUT_TIME;
        loop {
            // The copies are of one moment if nothing is written from the first to the last one.
            if let Some(before) = self.written(members) {
                self.images.snapshot(members)?;
                if self.written(members) == Some(before) {
                    return Ok(());
                }
            }
            if Instant::now() > end {
                for (_, snapshot) in members {
                    self.images.delete_snapshot(snapshot)?;
                }
                return Err(io::Error::other(
                    "the volumes were written during each attempt to copy them at one moment: choose a --state-dir on btrfs",
                ));
            }
        }
    }

    /// Makes a volume larger, even while the volume is attached.
    pub(crate) fn resize(&self, volume: &str, gib: u32) -> io::Result<()> {
        self.images.resize(volume, gib)?;
        match self.records.find(volume) {
            Some(r) if is_ours(r) => sys::grow_loop(&open_loop(&self.nodes, r.number, false)?),
            _ => Ok(()),
        }
    }

    /// Rewrites the statistics page of each attached volume, where a node reads it as if from the
    /// volume's NVMe controller.
    pub(crate) fn write_statistics_pages(&self) -> io::Result<()> {
        for record in self.records.all.iter().filter(|r| !r.abandoned) {
            for instance in record.instances.keys() {
                let node = self.dev.join(instance).join(format!("loop{}", record.number));
                if node.exists() && is_ours(record) {
                    statistics_page::write(&node, record.number)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn loops(&self) -> Vec<LoopRecord> {
        let all = self.records.all.iter();
        all.filter(|r| !r.abandoned || is_ours(r)).cloned().collect()
    }
}

fn control() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(|e| {
        let why = "the kernel needs loop devices, and this process the right to use them";
        io::Error::new(e.kind(), format!("/dev/loop-control: {e}; {why}"))
    })
}

/// Opens a loop device through the host's node, or through the simulator's own node if the host has
/// none.
pub(super) fn open_loop(nodes: &Path, number: u32, exclusive: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(if exclusive { libc::O_EXCL } else { 0 });
    let host = PathBuf::from(format!("/dev/loop{number}"));
    if matches(&host, number) {
        return options.open(host);
    }
    let own = nodes.join(format!("loop{number}"));
    make_node(&own, number)?;
    options.open(own)
}

/// Returns whether a path is the block node of this loop device.
fn matches(path: &Path, number: u32) -> bool {
    std::fs::metadata(path).is_ok_and(|m| {
        m.file_type().is_block_device() && device_number(number).is_ok_and(|d| d == m.rdev())
    })
}

fn make_node(path: &Path, number: u32) -> io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok() {
        if matches(path, number) {
            return Ok(());
        }
        remove(path)?;
    }
    mknodat(CWD, path, FileType::BlockDevice, Mode::from_raw_mode(0o660), device_number(number)?)?;
    // The process's umask may have removed bits.
    rustix::fs::chmod(path, Mode::from_raw_mode(0o660))?;
    Ok(())
}

fn device_number(number: u32) -> io::Result<u64> {
    let path = format!("/sys/block/loop{number}/dev");
    let text = std::fs::read_to_string(&path)?;
    let parse = |t: &str| {
        let (major, minor) = t.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    parse(&text).ok_or_else(|| io::Error::other(format!("{path} says {text:?}")))
}

/// Returns a device name without `/dev/`, as a single path component.
fn short_name(name: &str) -> &str {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns the id of the group `disk`, or 6 if /etc/group does not list that group.
fn disk_group() -> u32 {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let id_of_disk = |line: &str| line.strip_prefix("disk:")?.split(':').nth(1)?.parse().ok();
    groups.lines().find_map(id_of_disk).unwrap_or(6)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoopRecord {
    /// The N of `/dev/loopN`.
    pub number: u32,
    pub volume: String,
    pub(crate) image: PathBuf,
    /// The instances that see the device, with the device name on each.
    pub instances: BTreeMap<String, String>,
    /// Whether the device was removed by force while in use; the kernel then releases the device
    /// with its last user.
    #[serde(default)]
    pub(crate) abandoned: bool,
}

#[derive(Debug)]
pub(super) struct LoopRecords {
    path: PathBuf,
    pub(super) all: Vec<LoopRecord>,
}

impl LoopRecords {
    pub(super) fn open(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("loops.json");
        let all = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        Ok(Self { path, all })
    }

    /// Returns a volume's record, unless that record is abandoned.
    pub(super) fn find(&self, volume: &str) -> Option<&LoopRecord> {
        self.all.iter().find(|r| r.volume == volume && !r.abandoned)
    }

    pub(super) fn change_of(
        &mut self,
        number: u32,
        f: impl FnMut(&mut LoopRecord),
    ) -> io::Result<()> {
        self.change(|all| all.iter_mut().filter(|r| r.number == number).for_each(f))
    }

    pub(super) fn change(&mut self, f: impl FnOnce(&mut Vec<LoopRecord>)) -> io::Result<()> {
        let mut next = self.all.clone();
        f(&mut next);
        let temporary = self.path.with_extension("next");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(&next).map_err(io::Error::other)?)?;
        std::fs::rename(&temporary, &self.path)?;
        self.all = next;
        Ok(())
    }
}

/// Returns the file to which the kernel reports `/dev/loopN` to be bound, or `None` if the device
/// is not bound.
pub(super) fn backing_file(number: u32) -> Option<PathBuf> {
    let text =
        std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    let text = text.trim_end_matches('\n');
    Some(PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(text)))
}

/// Returns the kernel's counters of a disk's writes, discards and flushes
/// (`Documentation/block/stat.rst`), or `None` while there is an unfinished write.
fn writes(number: u32) -> Option<String> {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/block/loop{number}/{file}")).ok();
    let unfinished = read("inflight")?;
    if unfinished.split_ascii_whitespace().nth(1)? != "0" {
        return None;
    }
    let stat = read("stat")?;
    let counters: Vec<_> = stat.split_ascii_whitespace().collect();
    Some([4, 11, 15].map(|at| counters.get(at).copied().unwrap_or_default()).join(" "))
}

pub(super) fn is_ours(record: &LoopRecord) -> bool {
    backing_file(record.number).is_some_and(|f| f == record.image)
}
