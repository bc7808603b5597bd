//! Who may open the disks of a machine, by the owners and modes of their nodes in `/dev`.
//!
//! The group of disks has no fixed number: most distributions use 6, some allocate another number,
//! and some have no such group.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::{fs, io};

use super::{Identity, Profile};
use crate::disk_class::DiskClass;
use crate::pattern;

/// Read and write permission of the group.
const GROUP_READ_WRITE: u32 = 0o060;
/// Read and write permission of the owner.
const OWNER_READ_WRITE: u32 = 0o600;
/// The permission bits.
const PERMISSION_BITS: u32 = 0o777;
/// A machine has one group of disks, or two where somebody changed it. Machines with more groups
/// are not supported.
const MAX_GROUPS: usize = 8;

/// Who may open a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOwner {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
}

impl NodeOwner {
    /// Returns whether the node's group may read and write.
    #[must_use]
    pub const fn is_open_to_group(self) -> bool {
        self.mode & GROUP_READ_WRITE == GROUP_READ_WRITE
    }

    /// Returns whether no group may read and write and user 0 may without a capability.
    #[must_use]
    pub const fn is_open_to_root_alone(self) -> bool {
        !self.is_open_to_group()
            && self.uid == 0
            && self.mode & OWNER_READ_WRITE == OWNER_READ_WRITE
    }
}

/// The nodes of disks in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockNodes {
    /// Names and owners, in the order of the names.
    pub nodes: Vec<(String, NodeOwner)>,
}

impl BlockNodes {
    /// Reads a device directory, for a policy that takes disks of this class as volumes. Fails when
    /// the directory cannot be listed. A node that goes away meanwhile is left out.
    pub fn read(directory: &Path, class: DiskClass) -> io::Result<Self> {
        let mut nodes = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            if !is_disk(&name, class) {
                continue;
            }
            if let Ok(found) = fs::symlink_metadata(entry.path())
                && found.file_type().is_block_device()
            {
                let owner = NodeOwner {
                    uid: found.uid(),
                    gid: found.gid(),
                    mode: found.mode() & PERMISSION_BITS,
                };
                nodes.push((name, owner));
            }
        }
        nodes.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(Self { nodes })
    }

    /// Returns the groups that may open nodes.
    #[must_use]
    pub fn groups(&self) -> Vec<u32> {
        let groups: BTreeSet<u32> = self
            .nodes
            .iter()
            .filter(|(_, owner)| owner.is_open_to_group())
            .map(|(_, owner)| owner.gid)
            .collect();
        groups.into_iter().take(MAX_GROUPS).collect()
    }

    /// Returns the nodes that neither a group nor root as their owner may open.
    pub fn closed(&self) -> impl Iterator<Item = &(String, NodeOwner)> {
        self.nodes
            .iter()
            .filter(|(_, owner)| !owner.is_open_to_group() && !owner.is_open_to_root_alone())
    }

    /// Returns whether root alone may open some node.
    #[must_use]
    pub fn need_root(&self) -> bool {
        self.nodes.iter().any(|(_, owner)| owner.is_open_to_root_alone())
    }
}

impl Profile {
    /// Returns the profile on a machine with these nodes: a process that opens disks gets the
    /// nodes' groups, and user 0 where root alone may open a node. Without a node, the policy's
    /// identity stays. The result is leaked, because profiles live as long as the process.
    pub fn on(&'static self, nodes: &BlockNodes) -> &'static Self {
        if !self.identity.opens_disks || nodes.nodes.is_empty() {
            return self;
        }
        let identity = Identity {
            uid: if nodes.need_root() { 0 } else { self.identity.uid },
            groups: Box::leak(nodes.groups().into_boxed_slice()),
            ..self.identity
        };
        Box::leak(Box::new(Self { identity, ..*self }))
    }
}

/// Returns whether the kernel gives this name to a disk or partition: `nvme0n1p2`, `sda1`, `xvdba`.
/// Loop devices and disks of virtio-blk count only where they can be volumes.
fn is_disk(name: &str, class: DiskClass) -> bool {
    let more: &[&str] = match class {
        DiskClass::Ebs => &[],
        DiskClass::Guest => &["vd@", "vd@#"],
        DiskClass::LoopFile => &["loop#", "loop#p#"],
    };
    let always = ["nvme#n#", "nvme#n#p#", "sd@", "sd@#", "xvd@", "xvd@#"];
    always.iter().chain(more).any(|form| pattern::has_form(form, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;
    use std::env;
    use std::process::{self, Command, Stdio};

    fn nodes(owners: &[(&str, u32, u32)]) -> BlockNodes {
        let owner = |(name, gid, mode): &(&str, u32, u32)| {
            let (gid, mode) = (*gid, *mode);
            ((*name).to_owned(), NodeOwner { uid: 0, gid, mode })
        };
        BlockNodes { nodes: owners.iter().map(owner).collect() }
    }

    #[test]
    fn is_disk_accepts_only_disk_and_partition_names() {
        for name in ["nvme0n1", "nvme10n2p3", "sda", "sdab12", "xvda", "xvdba1"] {
            assert!(is_disk(name, DiskClass::Ebs), "{name}");
        }
        for name in [
            "nvme0",
            "nvme0n",
            "nvme0n1p",
            "nvme-fabrics",
            "ng0n1",
            "sd",
            "sd1",
            "sda1b",
            "sdA",
            "loop0",
            "loop-control",
            "sr0",
            "dm-0",
            "md0",
            "xvd",
            "vda",
        ] {
            assert!(!is_disk(name, DiskClass::Ebs), "{name}");
        }
        for name in ["loop0", "loop0p1"] {
            assert!(is_disk(name, DiskClass::LoopFile), "{name}");
            assert!(!is_disk(name, DiskClass::Guest), "{name}");
        }
        assert!(!is_disk("loop-control", DiskClass::LoopFile));
        for name in ["vda", "vdb2", "nvme0n1", "sda"] {
            assert!(is_disk(name, DiskClass::Guest), "{name}");
        }
        assert!(!is_disk("vd", DiskClass::Guest));
    }

    /// The modes are those that mknod(1) is given; the numbers are of a major number that no driver
    /// has (linux/major.h).
    #[test]
    fn only_nodes_of_disks_are_read() {
        let directory = env::temp_dir().join(format!("ebs-csi-nodes-{}", process::id()));
        fs::create_dir(&directory).expect("create");
        let make = |name: &str, kind: &str, mode: &str| {
            Command::new("mknod")
                .args(["-m", mode, "--"])
                .arg(directory.join(name))
                .args([kind, "60", "0"])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        let made = make("sdb", "b", "640") && make("sda", "b", "660");
        if made {
            assert!(make("dm-0", "b", "600") && make("sdc", "c", "600"));
            fs::write(directory.join("sdd"), "").expect("write");
        }
        let found = BlockNodes::read(&directory, DiskClass::Ebs);
        let missing = BlockNodes::read(&directory.join("none"), DiskClass::Ebs);
        fs::remove_dir_all(&directory).expect("remove");
        assert!(missing.is_err());
        if !made {
            println!("skipped: mknod(1) of a block device is refused");
            return;
        }
        let expected = nodes(&[("sda", 0, 0o660), ("sdb", 0, 0o640)]);
        assert_eq!(found.expect("read"), expected);
    }

    #[test]
    fn disk_groups_include_only_groups_with_write_access() {
        let found = nodes(&[
            ("nvme0n1", 485, 0o660),
            ("nvme1n1", 6, 0o660),
            ("nvme2n1", 485, 0o660),
            ("nvme3n1", 7, 0o640),
            ("nvme4n1", 0, 0o660),
            ("nvme5n1", 0, 0o600),
        ]);
        assert_eq!(found.groups(), [0, 6, 485]);
        assert!(found.need_root());
        assert_eq!(found.closed().count(), 0);
        let mut foreign = found.clone();
        for (_, owner) in &mut foreign.nodes {
            owner.uid = 42;
        }
        assert!(!foreign.need_root());
        let closed: Vec<_> = foreign.closed().map(|(name, _)| name.as_str()).collect();
        assert_eq!(closed, ["nvme3n1", "nvme5n1"]);
    }

    #[test]
    fn only_the_opener_gets_the_groups_of_disks() {
        let found = nodes(&[("nvme0n1", 485, 0o660)]);
        for one in profile::ALL {
            let groups = one.on(&found).identity.groups;
            let expected: &[u32] = match one.name {
                "opener" => &[485],
                _ => one.identity.groups,
            };
            assert_eq!(groups, expected, "{}", one.name);
        }
        // No disk to decide from, and a disk that only root may open.
        let opener = profile::OPENER;
        assert_eq!(opener.on(&BlockNodes::default()).identity, opener.identity);
        assert_ne!(opener.identity.uid, 0);
        let closed = nodes(&[("nvme0n1", 0, 0o600)]);
        assert!(opener.on(&closed).identity.groups.is_empty());
        assert_eq!(opener.on(&closed).identity.uid, 0);
        assert_eq!(opener.on(&closed).identity.gid, opener.identity.gid);
    }
}
