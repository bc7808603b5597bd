//! Disks with content: never formatted, never mounted when damaged, never changed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ebs_csi_e2e::{Setting, bytes, setting};
use ebs_csi_sandbox::co::{Attachment, Claim};
use tonic::Code;

/// A function that writes content to a disk.
type Prepare = fn(&Path);

fn write(device: &Path, offset: u64, what: &[u8]) {
    let disk = File::options().write(true).open(device).expect("the device can be opened");
    disk.write_all_at(what, offset).expect("written");
    disk.sync_all().expect("synced");
}

fn run(program: &str, arguments: &[&str], device: &Path) {
    let output = Command::new(program)
        .args(arguments)
        .arg(device)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Writes an MBR with one Linux partition (type 0x83) from sector 2048.
fn partition_table(device: &Path) {
    let mut sector = [0_u8; 512];
    sector[446..462]
        .copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0x00, 0x08, 0, 0, 0x00, 0x00, 0x10, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    write(device, 0, &sector);
}

/// Writes the header of a GUID partition table (UEFI specification 5.3.2).
fn guid_partition_table(device: &Path) {
    write(device, 512, b"EFI PART\0\0\x01\0\x5c\0\0\0");
}

/// Writes the label of an LVM physical volume into the second sector.
fn physical_volume(device: &Path) {
    write(device, 512, b"LABELONE\x01\0\0\0\0\0\0\0");
    write(device, 536, b"LVM2 001");
}

/// Writes a LUKS header (version 2).
fn luks(device: &Path) {
    write(device, 0, b"LUKS\xba\xbe\0\x02");
}

/// Writes bytes of no known format where every file system begins.
fn unknown_bytes(device: &Path) {
    write(device, 0, &bytes::of("unknown")[..4096]);
}

/// Writes a few bytes of user data at an offset without a known signature.
fn few_bytes(device: &Path) {
    write(device, 3000, b"my data");
}

/// Makes an ext4 and overwrites the middle of its superblock.
fn damaged_ext4(device: &Path) {
    run("mke2fs", &["-q", "-F", "-t", "ext4"], device);
    write(device, 1024 + 8, &[0xff; 40]);
}

/// Makes an XFS and overwrites the middle of its superblock.
fn damaged_xfs(device: &Path) {
    run("mkfs.xfs", &["-q", "-f"], device);
    write(device, 4, &[0xff; 60]);
}

fn healthy_xfs(device: &Path) {
    run("mkfs.xfs", &["-q", "-f"], device);
}

/// Makes a swap area.
fn swap(device: &Path) {
    run("mkswap", &[], device);
}

/// Writes the superblock of a Linux software RAID, version 1.2.
fn raid(device: &Path) {
    write(device, 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0");
}

/// Writes an uberblock into the first label of a ZFS pool.
fn zfs(device: &Path) {
    write(device, 128 << 10, &0x00ba_b10c_u64.to_le_bytes());
}

/// Writes the superblock of a btrfs.
fn btrfs(device: &Path) {
    write(device, 0x1_0040, b"_BHRfS_M");
}

/// Writes the volume descriptor of an ISO 9660 image.
fn iso(device: &Path) {
    write(device, 32768, b"\x01CD001\x01");
}

/// Makes an ext4 and erases its first superblock.
fn beheaded_ext4(device: &Path) {
    run("mke2fs", &["-q", "-F", "-t", "ext4"], device);
    write(device, 0, &[0; 4096]);
}

/// The content, its name, and the finding that the refusal reports.
const FOREIGN: &[(Prepare, &str, &str)] = &[
    (partition_table, "a partition table", "a dos partition table (mbr)"),
    (guid_partition_table, "a GUID partition table", "a guid partition table (gpt)"),
    (physical_volume, "an LVM physical volume", "an lvm2 physical volume"),
    (luks, "a LUKS header", "a luks header"),
    (raid, "a RAID member", "a linux software raid (md)"),
    (zfs, "a ZFS pool", "a zfs pool"),
    (btrfs, "a btrfs", "a btrfs file system"),
    (iso, "an ISO image", "an iso 9660 image"),
    (unknown_bytes, "unknown bytes", "unknown bytes at offset 0 "),
    (few_bytes, "a few bytes between signatures", "unknown bytes at offset 3000 "),
    (swap, "swap space", "found swap space"),
    (damaged_ext4, "a damaged ext4", "an ext4 file system on the disk, damaged"),
    (beheaded_ext4, "an ext4 without its superblock", "an ext4 file system on the disk, damaged"),
    (damaged_xfs, "a damaged XFS", "an xfs file system on the disk, damaged"),
    (healthy_xfs, "an XFS where ext4 is asked for", "an xfs file system on the disk: "),
];

fn device(setting: &Setting, attachment: &Attachment) -> PathBuf {
    let name = attachment.context["devicePath"].trim_start_matches("/dev/");
    setting.world.nodes[0].dev_dir.join(name)
}

#[tokio::test]
async fn disk_with_unexpected_content_is_refused_unchanged() {
    let Some(setting) = Setting::start().await else { return };
    let mut wrong = Vec::new();
    for (index, (prepare, what, word)) in FOREIGN.iter().enumerate() {
        let (volume, attachment) =
            setting.attached(&Claim::filesystem(&format!("pvc-foreign-{index}"), "ext4", 1)).await;
        let disk = device(&setting, &attachment);
        prepare(&disk);
        let before = bytes::digest(&disk);
        let mut kubelet = setting.kubelets[0].clone();
        kubelet.patience = kubelet.patience.once();
        match kubelet.stage(&volume, &attachment).await {
            Ok(_) => wrong.push(format!("{what}: was staged")),
            Err(e) => {
                println!("{what}: {e}");
                if e.code() != Some(Code::FailedPrecondition) {
                    wrong.push(format!("{what}: {e}"));
                }
                if !e.to_string().to_lowercase().contains(word) {
                    wrong.push(format!("{what}: the message does not say {word:?}: {e}"));
                }
            }
        }
        if bytes::digest(&disk) != before {
            wrong.push(format!("{what}: the disk was changed"));
        }
        let mounted = setting::mounted_beneath(kubelet.root());
        if !mounted.is_empty() {
            wrong.push(format!("{what}: mounted at {mounted:?}"));
        }
        setting.discard(&volume).await;
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), setting.logs());
    setting.finish().await;
}

/// The publish context names the origin; such a disk must hold data, so the agent never formats it.
#[tokio::test]
async fn blank_disk_from_snapshot_or_clone_is_refused() {
    let Some(setting) = Setting::start().await else { return };
    for origin in ["snapshot", "volume"] {
        let (volume, mut attachment) =
            setting.attached(&Claim::filesystem(&format!("pvc-from-{origin}"), "ext4", 1)).await;
        let disk = device(&setting, &attachment);
        let before = bytes::digest(&disk);
        attachment.context.insert("ebs.csi.aws.com/origin".to_owned(), origin.to_owned());
        let mut kubelet = setting.kubelets[0].clone();
        kubelet.patience = kubelet.patience.once();
        let refused = kubelet.stage(&volume, &attachment).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
        assert_eq!(bytes::digest(&disk), before, "the disk was changed");
        assert!(setting::mounted_beneath(kubelet.root()).is_empty());
        setting.discard(&volume).await;
    }
    setting.finish().await;
}
