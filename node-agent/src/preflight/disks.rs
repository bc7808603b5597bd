//! The owners of the node's disks: the mount-helper opens the disks through their group.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::{Check, Host};

const WHAT: &str = "disks";

/// User, group and mode of a device node.
type Owner = (u32, u32, u32);

pub(super) fn check(host: &Host) -> Check {
    let entries = match std::fs::read_dir(host.path("/dev")) {
        Ok(entries) => entries,
        Err(error) => {
            return Check::warn(WHAT, super::describe_error(&error), "mount the node's /dev");
        }
    };
    let mut owners: BTreeMap<Owner, Vec<String>> = BTreeMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(found) = entry.metadata() else {
            continue;
        };
        if found.file_type().is_block_device() && is_disk(&name) {
            let owner = (found.uid(), found.gid(), found.mode() & 0o7777);
            owners.entry(owner).or_default().push(name);
        }
    }
    check_owners(owners)
}

/// Returns whether the name is that of a whole disk on EC2: NVMe, Xen, and SCSI on other machines.
fn is_disk(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let letters = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase());
    let nvme = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    nvme.is_some_and(|(controller, disk)| digits(controller) && digits(disk))
        || name.strip_prefix("xvd").is_some_and(letters)
        || name.strip_prefix("sd").is_some_and(letters)
}

fn check_owners(owners: BTreeMap<Owner, Vec<String>>) -> Check {
    let show = |((user, group, mode), names): (&Owner, &Vec<String>)| {
        let mut names = names.clone();
        names.sort();
        format!("{} {user}:{group} {mode:04o}", names.join(" "))
    };
    let finding = owners.iter().map(show).collect::<Vec<_>>().join(", ");
    let groups: Vec<&Owner> = owners.keys().collect();
    match groups.as_slice() {
        [] => Check::warn(WHAT, "none seen", "mount the node's /dev"),
        [(_, 0, _)] => Check::warn(
            WHAT,
            finding,
            "they belong to root alone: see what the mount-helper says of its disks",
        ),
        [(_, _, mode)] if mode & 0o060 == 0o060 => Check::ok(WHAT, finding),
        [_] => Check::warn(WHAT, finding, "their group may not read and write them"),
        _ => Check::warn(WHAT, finding, "they have different owners or modes"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn only_single_writable_non_root_disk_group_passes() {
        for (owners, level) in [
            (vec![], Level::Warn),
            (vec![(0, 6, 0o660)], Level::Ok),
            (vec![(0, 994, 0o660)], Level::Ok),
            (vec![(0, 0, 0o600)], Level::Warn),
            (vec![(0, 6, 0o640)], Level::Warn),
            (vec![(0, 6, 0o660), (0, 7, 0o660)], Level::Warn),
        ] {
            let owners = owners.into_iter().map(|one| (one, vec!["nvme0n1".to_owned()]));
            let check = check_owners(owners.collect());
            assert_eq!(check.level, level, "{check:?}");
        }
    }

    #[test]
    fn is_disk_accepts_only_whole_disk_names() {
        for (name, disk) in [
            ("nvme0n1", true),
            ("nvme12n1", true),
            ("nvme0n1p1", false),
            ("nvme0", false),
            ("xvdba", true),
            ("xvda1", false),
            ("sda", true),
            ("sda1", false),
            ("loop0", false),
        ] {
            assert_eq!(is_disk(name), disk, "{name}");
        }
    }
}
