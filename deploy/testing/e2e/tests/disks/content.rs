//! Disks with content: never formatted, never mounted when damaged, never changed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ebs_csi_e2e::{Fixture, digest, program};
use ebs_csi_sandbox::co::Claim;
use ebs_csi_sandbox::pod_view;
use tonic::Code;

enum Step {
    Write(u64, &'static [u8]),
    Run(&'static str, &'static [&'static str]),
}

impl Step {
    fn take(&self, device: &Path) {
        match self {
            Step::Write(offset, bytes) => {
                let disk = File::options().write(true).open(device).expect("the device");
                disk.write_all_at(bytes, *offset).expect("written");
                disk.sync_all().expect("synced");
            }
            Step::Run(name, arguments) => {
                let mut command = program::bare(Path::new(name), arguments, &[]);
                command.arg(device);
                let ended = program::run(command);
                assert_eq!(ended.status, Some(0), "{name}: {ended:?}");
            }
        }
    }
}

/// Bytes of no known format.
const UNKNOWN: [u8; 4096] = {
    let mut bytes = [0; 4096];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at * at % 251 + 1) as u8;
        at += 1;
    }
    bytes
};

/// The content, the finding that the refusal reports, and how the content is made.
const FOREIGN: &[(&str, &str, &[Step])] = {
    use Step::{Run, Write};
    const EXT4: Step = Run("mke2fs", &["-q", "-F", "-t", "ext4"]);
    const XFS: Step = Run("mkfs.xfs", &["-q", "-f"]);
    // One Linux partition (type 0x83) from sector 2048.
    const PARTITION: Step = Write(446, b"\0\0\0\0\x83\0\0\0\x00\x08\0\0\x00\x00\x10\0");
    // UEFI specification 5.3.2.
    const GPT: Step = Write(512, b"EFI PART\0\0\x01\0\x5c\0\0\0");
    const LVM: Step = Write(512, b"LABELONE\x01\0\0\0\0\0\0\0");
    // The uberblock in the first label of a pool.
    const ZFS: Step = Write(128 << 10, &0x00ba_b10c_u64.to_le_bytes());
    const DAMAGED_EXT4: &str = "an ext4 file system on the disk, damaged";
    &[
        (
            "a partition table",
            "a dos partition table (mbr)",
            &[PARTITION, Write(510, &[0x55, 0xaa])],
        ),
        ("a GUID partition table", "a guid partition table (gpt)", &[GPT]),
        ("an LVM physical volume", "an lvm2 physical volume", &[LVM, Write(536, b"LVM2 001")]),
        ("a LUKS header, version 2", "a luks header", &[Write(0, b"LUKS\xba\xbe\0\x02")]),
        (
            "a RAID member, version 1.2",
            "a linux software raid (md)",
            &[Write(4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0")],
        ),
        ("a ZFS pool", "a zfs pool", &[ZFS]),
        ("a btrfs superblock", "a btrfs file system", &[Write(0x1_0040, b"_BHRfS_M")]),
        ("an ISO image", "an iso 9660 image", &[Write(32768, b"\x01CD001\x01")]),
        ("unknown bytes", "unknown bytes at offset 0 ", &[Write(0, &UNKNOWN)]),
        ("bytes between signatures", "unknown bytes at offset 3000 ", &[Write(3000, b"my data")]),
        ("swap space", "found swap space", &[Run("mkswap", &[])]),
        ("an ext4 with damaged superblock", DAMAGED_EXT4, &[EXT4, Write(1024 + 8, &[0xff; 40])]),
        ("an ext4 without first superblock", DAMAGED_EXT4, &[EXT4, Write(0, &[0; 4096])]),
        (
            "an XFS with damaged superblock",
            "an xfs file system on the disk, damaged",
            &[XFS, Write(4, &[0xff; 60])],
        ),
        ("an XFS where ext4 is asked for", "an xfs file system on the disk: ", &[XFS]),
    ]
};

#[tokio::test]
async fn disk_with_unexpected_content_is_refused_unchanged() {
    let Some(fixture) = Fixture::start().await else { return };
    let mut kubelet = fixture.kubelets[0].clone();
    kubelet.retry_policy = kubelet.retry_policy.once();
    let mut wrong = Vec::new();
    for (index, (what, word, steps)) in FOREIGN.iter().enumerate() {
        let (volume, attachment) =
            fixture.attached(&Claim::filesystem(&format!("pvc-foreign-{index}"), "ext4", 1)).await;
        let name = attachment["devicePath"].trim_start_matches("/dev/");
        let disk = fixture.world.nodes[0].dev_dir.join(name);
        steps.iter().for_each(|step| step.take(&disk));
        let before = digest::of_disk(&disk);
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
        if digest::of_disk(&disk) != before {
            wrong.push(format!("{what}: the disk was changed"));
        }
        let mounted = pod_view::mounts_beneath(kubelet.root()).unwrap();
        if !mounted.is_empty() {
            wrong.push(format!("{what}: mounted at {mounted:?}"));
        }
        fixture.discard(&volume, &[]).await;
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), fixture.logs());
    fixture.finish().await;
}
