//! What is opened by name, before the process can no longer do so.
use crate::disk::attachments::ReadOnlyRecord;
use crate::disk::device::{DiskRoots, XenDisk};
use crate::disk::promises::Promises;
use crate::disk::xen_disk_record::{self, XenDiskRecord};
use crate::journal;
use crate::mount::kubelet_root::KubeletRoot;
use crate::mount::kubelet_root_lock::{self, NotLocked};
use crate::roles::relay::vsock_port::VsockPort;
use crate::session::listen::{self, Listen};
use crate::session::listener::{self, Listener};
use crate::settings::{HelperSettings, default_kubelet_root};
use ebs_csi_policy::ceiling::{Ceiling, CeilingSettings};
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_policy::judge::disk_by_name::DisksWithoutSerial;
use ebs_csi_policy::profile::BlockNodes;
use ebs_csi_wire::KeyFile;
use rustix::fd::OwnedFd;
use std::io;
use std::path::Path;

/// What the relay uses.
pub(super) struct OpenedVsock {
    pub(super) ports: Vec<VsockPort>,
    pub(super) key: KeyFile,
}

pub(super) struct Opened {
    pub(super) root: KubeletRoot,
    pub(super) disks: DiskRoots,
    pub(super) read_only_record: ReadOnlyRecord,
    pub(super) promises: Promises,
    pub(super) listeners: Vec<Listener>,
    /// `None` without an address of vsock.
    pub(super) vsock: Option<OpenedVsock>,
    pub(super) rules: Ceiling,
    pub(super) nodes: BlockNodes,
}

impl Opened {
    /// Closes everything but the kubelet root, which the directories process uses.
    pub(super) fn into_root(self) -> KubeletRoot {
        self.root
    }

    /// Closes everything but the device directories, which the opener uses; returns the owners of
    /// the device nodes, too.
    pub(super) fn into_disks(self) -> (DiskRoots, BlockNodes) {
        (self.disks, self.nodes)
    }
}

/// Locks the kubelet root and opens everything; `None` when the process was told to end meanwhile.
/// The descriptor holds the lock.
pub(super) fn open(
    settings: &HelperSettings,
) -> Result<Option<(OwnedFd, Opened)>, (String, io::Error)> {
    let policy = settings.policy;
    let rules = Ceiling::under(
        policy,
        CeilingSettings {
            places: settings.places,
            tool_deadline: settings.tool_deadline,
            untrusted_images: Some(settings.untrusted_images),
            nodev_nosuid: Some(settings.nodev_nosuid),
            disks_without_serial: Some(settings.disks_without_serial),
            ..CeilingSettings::default()
        },
    )
    .map_err(|e| ("settings".to_owned(), io::Error::other(e)))?;
    let root = KubeletRoot::open(settings.kubelet_root.clone())
        .map_err(|e| (settings.kubelet_root.to_string(), e.into()))?;
    let given = Path::new(settings.kubelet_root.as_str());
    let own = Path::new(default_kubelet_root());
    ebs_csi_confine::check_held("--kubelet-root", given, root.held(), own)
        .map_err(|why| (settings.kubelet_root.to_string(), io::Error::other(why)))?;
    // Opened before the lock: a helper that cannot serve must not let another wait for it.
    let key = settings
        .key_file
        .as_deref()
        .map(|path| {
            KeyFile::open(path).map_err(|why| (path.display().to_string(), io::Error::other(why)))
        })
        .transpose()?;
    // The lock comes before everything that an earlier helper may still use: its files about disks,
    // its socket.
    let lock = match kubelet_root_lock::lock(&root, settings.grace) {
        Ok(lock) => lock,
        Err(NotLocked::Stopped) => return Ok(None),
        Err(NotLocked::OtherHelper) => {
            let why = "another mount-helper serves it";
            return Err((settings.kubelet_root.to_string(), io::Error::other(why)));
        }
        Err(NotLocked::Os(why)) => return Err((settings.kubelet_root.to_string(), why)),
    };
    let simulated = policy.disks == DiskClass::LoopFile;
    let disks =
        DiskRoots::open(policy.disks).map_err(|e| ("/sys and /dev".to_owned(), e.into()))?;
    let boot = xen_disk_record::boot()?;
    let records = listen::records_path(&settings.listen);
    let disks = match rules.disks_without_serial() {
        DisksWithoutSerial::ByName if !simulated && disks.has_xen_disk() => {
            open_accepting_names(disks, records, &boot)?
        }
        _ => disks,
    };
    let still_there = |sequence, number| disks.sequence_of(number) == Some(sequence);
    let read_only_record =
        ReadOnlyRecord::open(&ReadOnlyRecord::path_beside(records), &boot, still_there);
    let promises = Promises::open(&Promises::path_beside(records), &boot);
    let nodes =
        BlockNodes::read(Path::new("/dev"), policy.disks).map_err(|e| ("/dev".to_owned(), e))?;
    let (mut listeners, mut ports) = (Vec::new(), Vec::new());
    for address in &settings.listen {
        let bound = match address {
            Listen::Unix(path) => {
                listener::bind_unix(path).map(|socket| listeners.push(Listener::Unix(socket)))
            }
            Listen::Vsock { cid, port } => {
                VsockPort::bind(*cid, *port).map(|port| ports.push(port))
            }
        };
        bound.map_err(|e| (address.to_string(), e))?;
    }
    let vsock = key.map(|key| OpenedVsock { ports, key });
    if !settings.wider.is_empty() {
        let meaning = "more is permitted than by the policy without these settings";
        let wider = settings.wider.join(" ");
        journal::warn("wider-settings", &[("settings", &wider), ("meaning", meaning)]);
    }
    log_closed_disks(&nodes);
    let opened = Opened { root, disks, read_only_record, promises, listeners, vsock, rules, nodes };
    Ok(Some((lock, opened)))
}

/// Makes `disks` accept disks without a serial by their name, and record beside the socket what
/// each is taken for. The error contains the path of the file.
fn open_accepting_names(
    disks: DiskRoots,
    socket: &Path,
    boot: &str,
) -> Result<DiskRoots, (String, io::Error)> {
    let disks = disks.accepting_names();
    let at = |what: &Path| {
        let what = what.to_string_lossy().into_owned();
        move |why: io::Error| (what, why)
    };
    let path = XenDiskRecord::path_beside(socket);
    let still_there = |disk: &XenDisk| disks.xen_disk(disk.number) == Some(*disk);
    let taken = XenDiskRecord::open(&path, boot, still_there).map_err(|e| at(&path)(e.into()))?;
    let meaning = "this machine is built on Xen: its disks have no serial, and are taken for \
                   volumes by the name that EC2 was told";
    let (file, switch) = (path.to_string_lossy(), ("switch", "--disks-without-serial"));
    journal::warn("disks-by-name", &[("meaning", meaning), ("file", &file), switch]);
    Ok(disks.recording(taken))
}

/// Logs one line when there are disks that no group may open.
fn log_closed_disks(nodes: &BlockNodes) {
    let closed: Vec<String> = nodes
        .closed()
        .map(|(name, owner)| format!("{name} {}:{} {:04o}", owner.uid, owner.gid, owner.mode))
        .collect();
    if !closed.is_empty() {
        let missing = "a group that may read and write these nodes: a volume whose node is like \
            them cannot be staged; a udev rule gives disks a group \
            (SUBSYSTEM==\"block\", GROUP=\"disk\", MODE=\"0660\")";
        journal::warn("closed-disks", &[("nodes", &closed.join(", ")), ("missing", missing)]);
    }
}
