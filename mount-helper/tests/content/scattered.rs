//! A disk that a few bytes describe: its size, and the content at some offsets. The rest of the
//! disk is zero.
//!
//! Four bytes hold the number of sectors of 512 bytes, less one. Pieces follow: four bytes for the
//! offset, in units of 64 bytes, two for the length, and the content. All numbers are
//! little-endian. The number of sectors is taken modulo its maximum and an offset modulo the disk's
//! size; content beyond the end is left out.
use ebs_csi_mount_helper::disk::content;
use ebs_csi_policy::blank;
use ebs_csi_policy::facts::{Content, DeviceNumber, DiskFacts, Evidence};
use ebs_csi_policy::judge::untrusted_images::UntrustedImages;
use ebs_csi_policy::judge::{self, Preparation};
use ebs_csi_wire::{Disk, FsType, KubeletPath, Origin, Source, Stage, VolumeId};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

const BLOCK: u64 = 4096;
/// Number of sectors of the largest disk: 4 GiB.
const MOST_SECTORS: u32 = 8 << 20;
const UNIT: u64 = 64;
/// A time after the images were made, in seconds since 1970.
const NOW: u64 = 1_800_000_000;

struct Scattered {
    size: u64,
    /// Blocks with content, by their number.
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Scattered {
    fn read(input: &[u8]) -> Self {
        let (sectors, mut rest) = number(input);
        let size = (u64::from(sectors % MOST_SECTORS) + 1) * 512;
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        while rest.len() > 6 {
            let (place, after) = number(rest);
            let length = usize::from(u16::from_le_bytes([after[0], after[1]]));
            let (piece, next) = after[2..].split_at(length.min(after.len() - 2));
            let start = u64::from(place) * UNIT % size;
            for (at, byte) in (start..size).zip(piece) {
                let block = blocks.entry(at / BLOCK).or_insert_with(|| vec![0; 4096]);
                block[usize::try_from(at % BLOCK).expect("within a block")] = *byte;
            }
            rest = next;
        }
        Self { size, blocks }
    }

    fn in_memory(&self) -> OwnedFd {
        let memory = memfd_create("scattered", MemfdFlags::CLOEXEC).expect("memfd_create");
        for (number, block) in &self.blocks {
            let at = number * BLOCK;
            let length = usize::try_from((self.size - at).min(BLOCK)).expect("a block");
            let written = pwrite(&memory, &block[..length], at).expect("pwrite");
            assert_eq!(written, length);
        }
        ftruncate(&memory, self.size).expect("ftruncate");
        memory
    }

    /// Returns whether an area that is zero on a blank disk holds something.
    fn is_used(&self) -> bool {
        let ranges = blank::ranges(self.size);
        self.blocks.iter().any(|(number, block)| {
            (number * BLOCK..).zip(block).any(|(at, byte)| {
                *byte != 0
                    && ranges.iter().any(|(start, length)| (*start..start + length).contains(&at))
            })
        })
    }

    fn is_zero(&self) -> bool {
        self.blocks.values().flatten().all(|byte| *byte == 0)
    }
}

/// Reads four bytes as a number, and returns it with the remaining bytes. Missing bytes count as
/// zero.
fn number(bytes: &[u8]) -> (u32, &[u8]) {
    let (first, rest) = bytes.split_at(bytes.len().min(4));
    let mut four = [0; 4];
    four[..first.len()].copy_from_slice(first);
    (u32::from_le_bytes(four), rest)
}

/// Reads the disk that `input` describes, and compares the result and each judgement of it with the
/// disk's content.
pub(crate) fn look_and_judge(input: &[u8]) -> Content {
    let disk = Scattered::read(input);
    let content =
        content::read_content_within(disk.in_memory(), disk.size, NOW).expect("memory can be read");
    if content == Content::Blank {
        assert!(!disk.is_used(), "blank although something stands there");
    } else {
        assert!(!disk.is_zero(), "{content:?} on a disk of zeros");
    }
    let told = content.seen(disk.size).is_some();
    assert_eq!(told, content != Content::Blank, "{content:?}");
    for fs in [FsType::Ext3, FsType::Ext4, FsType::Xfs] {
        for origin in [Origin::Unknown, Origin::Blank, Origin::Copy] {
            for read_only in [false, true] {
                judged(&disk, &content, fs, origin, read_only);
            }
        }
    }
    content
}

fn judged(disk: &Scattered, content: &Content, fs: FsType, origin: Origin, read_only: bool) {
    let asked = Stage {
        disk: Disk {
            volume: VolumeId::parse("vol-0123456789abcdef0").expect("an id"),
            device_hint: None,
            partition: None,
            size_at_attach: None,
            attached_at: None,
            origin,
            source: Source::Elsewhere,
        },
        staging: KubeletPath::parse("/k/plugins/s").expect("a path"),
        fs,
        read_only,
        flags: Vec::new(),
        format: Vec::new(),
    };
    let facts = DiskFacts {
        bytes: disk.size,
        whole_bytes: disk.size,
        device: DeviceNumber(7),
        read_only: false,
    };
    let evidence =
        Evidence { uuid: [0xeb; 16], unfinished: false, examined: false, used_raw: false };
    for images in [UntrustedImages::Deny, UntrustedImages::Check, UntrustedImages::Allow] {
        let Ok(permit) = judge::stage_disk(&asked, &facts, content, evidence, images) else {
            continue;
        };
        let act = permit.act();
        if act.preparation == Preparation::Format {
            assert_eq!(*content, Content::Blank, "only zeros are formatted");
            assert!(!read_only && origin == Origin::Blank);
            continue;
        }
        // A mounted file system has the requested type and is not larger than its disk.
        let bytes = match content {
            Content::Ext(found) => {
                assert_ne!(fs, FsType::Xfs);
                let looked_at = act.preparation != Preparation::Nothing;
                assert!(found.clean || looked_at || act.no_replay || read_only, "{found:?}");
                found.bytes
            }
            Content::Xfs(found) => {
                assert_eq!(fs, FsType::Xfs);
                assert!(found.sound && !found.in_progress, "{found:?}");
                found.bytes
            }
            other => panic!("{other:?} would be mounted"),
        };
        assert!(bytes <= disk.size, "{content:?} on {} bytes", disk.size);
    }
}
