//! Signatures of what the driver does not make: each is a fixed string at fixed places.
use super::field::{be32, le16, le32};
use ebs_csi_wire::Signature;

struct Magic {
    of: Signature,
    bytes: &'static [u8],
    at: &'static [usize],
}

const fn s(of: Signature, bytes: &'static [u8], at: &'static [usize]) -> Magic {
    Magic { of, bytes, at }
}

/// Offsets count from the start of the disk; all lie within its first [`super::HEAD`] bytes.
const FOREIGN: &[Magic] = &[
    s(Signature::Luks, b"LUKS\xba\xbe", &[0]),
    s(Signature::Luks, b"SKUL\xba\xbe", &[0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000]),
    s(Signature::Lvm2, b"LABELONE", &[0, 512, 1024, 1536]),
    s(Signature::Swap, b"SWAPSPACE2", &[4086, 8182, 16374, 32758, 65526]),
    s(Signature::Swap, b"SWAP-SPACE", &[4086, 8182, 16374, 32758, 65526]),
    s(Signature::Btrfs, b"_BHRfS_M", &[0x1_0040]),
    s(Signature::Ntfs, b"NTFS    ", &[3]),
    s(Signature::Exfat, b"EXFAT   ", &[3]),
    s(Signature::Bitlocker, b"-FVE-FS-", &[3]),
    s(Signature::Refs, b"\0\0\0ReFS\0", &[0]),
    s(Signature::Vfat, b"FAT32   ", &[82]),
    s(Signature::Vfat, b"FAT16   ", &[54]),
    s(Signature::Vfat, b"FAT12   ", &[54]),
    s(Signature::Iso9660, b"CD001", &[32769]),
    s(Signature::Udf, b"BEA01", &[32769]),
    s(Signature::Udf, b"NSR02", &[34817, 36865]),
    s(Signature::Udf, b"NSR03", &[34817, 36865]),
    s(Signature::F2fs, b"\x10\x20\xf5\xf2", &[1024, 5120]),
    s(Signature::Erofs, b"\xe2\xe1\xf5\xe0", &[1024]),
    s(Signature::Squashfs, b"hsqs", &[0]),
    s(Signature::Cramfs, b"\x45\x3d\xcd\x28", &[0, 512]),
    s(Signature::Romfs, b"-rom1fs-", &[0]),
    s(Signature::Reiserfs, b"ReIsEr", &[8244, 65588]),
    s(Signature::Jfs, b"JFS1", &[32768]),
    s(Signature::Nilfs2, b"\x34\x34", &[1030]),
    s(Signature::Hfsplus, b"H+", &[1024]),
    s(Signature::Hfsplus, b"HX", &[1024]),
    s(Signature::Apfs, b"NXSB", &[32]),
    s(Signature::Gfs2, b"\x01\x16\x19\x70", &[65536]),
    s(Signature::Ocfs2, b"OCFSV2", &[1024, 2048, 4096, 8192]),
    s(Signature::Oracleasm, b"ORCLDISK", &[32]),
    s(Signature::XfsLog, b"\xfe\xed\xba\xbe", &[0]),
    s(Signature::Md, b"\xfc\x4e\x2b\xa9", &[0, 4096]),
    s(
        Signature::Bcache,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        &[4120],
    ),
    s(
        Signature::Bcachefs,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        &[4120],
    ),
    s(Signature::Stratis, b"!Stra0tis\x86\xff\x02^\x41rh", &[528, 4624]),
    s(Signature::Vdo, b"dmvdo001", &[0]),
];

/// Offsets count from the end of the disk.
const FOREIGN_AT_END: &[Magic] = &[
    s(Signature::Ddf, b"\xde\x11\xde\x11", &[512]),
    s(Signature::Md, b"\xfc\x4e\x2b\xa9", &[8192, 12288, 65536]),
    s(Signature::Drbd, b"\x83\x74\x02\x6b", &[4096]),
];

fn found(bytes: &[u8], at: usize, wanted: &[u8]) -> bool {
    at.checked_add(wanted.len()).and_then(|end| bytes.get(at..end)) == Some(wanted)
}

pub(super) fn foreign(head: &[u8]) -> Option<Signature> {
    let listed =
        FOREIGN.iter().find(|s| s.at.iter().any(|at| found(head, *at, s.bytes))).map(|s| s.of);
    listed.or_else(|| zfs(head).then_some(Signature::Zfs))
}

pub(super) fn foreign_at_end(tail: &[u8]) -> Option<Signature> {
    FOREIGN_AT_END
        .iter()
        .find(|s| {
            s.at.iter().any(|back| {
                tail.len().checked_sub(*back).is_some_and(|at| found(tail, at, s.bytes))
            })
        })
        .map(|s| s.of)
}

/// Returns whether any slot of the first label holds an uberblock: 128 slots of 1 KiB from 128 KiB
/// on, in either byte order.
fn zfs(head: &[u8]) -> bool {
    const MAGIC: u32 = 0x00ba_b10c;
    (0..128).any(|slot| {
        let at = (128 + slot) * 1024;
        // The magic is a 64-bit number whose upper half is zero.
        (le32(head, at) == MAGIC && le32(head, at + 4) == 0)
            || (be32(head, at) == 0 && be32(head, at + 4) == MAGIC)
    })
}

pub(super) fn partition_table(head: &[u8]) -> Option<Signature> {
    if found(head, 512, b"EFI PART") || found(head, 4096, b"EFI PART") {
        return Some(Signature::Gpt);
    }
    if found(head, 0, b"ER") && found(head, 512, b"PM") {
        return Some(Signature::Apm);
    }
    if found(head, 512, &0x8256_4557_u32.to_le_bytes())
        || found(head, 64, &0x8256_4557_u32.to_le_bytes())
    {
        return Some(Signature::Bsd);
    }
    if found(head, 508, b"\xda\xbe") {
        return Some(Signature::Sun);
    }
    mbr(head).then_some(Signature::Mbr)
}

/// Finds the backup header of a GPT in the last bytes of a disk, for sectors of 512 or 4096 bytes.
pub(super) fn partition_table_at_end(tail: &[u8]) -> Option<Signature> {
    [512, 4096]
        .into_iter()
        .filter_map(|back| tail.len().checked_sub(back))
        .any(|at| found(tail, at, b"EFI PART"))
        .then_some(Signature::Gpt)
}

/// Returns whether `head` has a boot signature and at least one partition, and each entry has a
/// valid boot indicator. Boot sectors of FAT and NTFS end in the same two bytes; the caller
/// recognises these by their own signatures first.
fn mbr(head: &[u8]) -> bool {
    if le16(head, 510) != 0xaa55 {
        return false;
    }
    let entries = [446, 462, 478, 494];
    let possible = entries.iter().all(|at| matches!(head.get(*at), Some(0 | 0x80)));
    possible && entries.iter().any(|at| head.get(at + 4) != Some(&0))
}

#[cfg(test)]
mod tests {
    use super::super::{HEAD, TAIL};
    use super::*;

    const BSD: &[u8] = b"\x57\x45\x56\x82";

    /// Zeros but for the pieces.
    fn bytes(length: usize, pieces: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (at, piece) in pieces {
            bytes[*at..at + piece.len()].copy_from_slice(piece);
        }
        bytes
    }

    #[test]
    fn each_signature_is_found_at_each_place() {
        for s in FOREIGN {
            for at in s.at {
                let head = bytes(HEAD, &[(*at, s.bytes)]);
                assert_eq!(foreign(&head), Some(s.of), "at {at}");
            }
        }
        for s in FOREIGN_AT_END {
            for back in s.at {
                let tail = bytes(TAIL, &[(TAIL - back, s.bytes)]);
                assert_eq!(foreign_at_end(&tail), Some(s.of), "{back} from the end");
            }
        }
        assert_eq!(foreign_at_end(&[0; 511]), None);
    }

    #[test]
    fn uberblock_is_found_in_128_slots() {
        let little: &[u8] = &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];
        let big: &[u8] = &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c];
        for (at, magic, is_zfs) in [
            (128, little, true),
            (255, little, true),
            (128, big, true),
            (255, big, true),
            (127, little, false),
            (256, little, false),
            (128, &[0x0c, 0xb1, 0xba, 0, 1, 0, 0, 0], false),
            (128, &[0, 0, 0, 1, 0, 0xba, 0xb1, 0x0c], false),
        ] {
            let head = bytes(HEAD, &[(at * 1024, magic)]);
            let found = foreign(&head);
            assert_eq!(found, is_zfs.then_some(Signature::Zfs), "{at} {magic:?}");
        }
    }

    #[test]
    fn each_partition_table_is_found_by_its_marks() {
        let boot: (usize, &[u8]) = (510, &[0x55, 0xaa]);
        type Pieces<'p> = &'p [(usize, &'p [u8])];
        let rows: &[(Pieces<'_>, Option<Signature>)] = &[
            (&[(512, b"EFI PART")], Some(Signature::Gpt)),
            (&[(4096, b"EFI PART")], Some(Signature::Gpt)),
            (&[(0, b"ER"), (512, b"PM")], Some(Signature::Apm)),
            (&[(0, b"ER")], None),
            (&[(512, b"PM")], None),
            (&[(512, BSD)], Some(Signature::Bsd)),
            (&[(64, BSD)], Some(Signature::Bsd)),
            (&[(508, b"\xda\xbe")], Some(Signature::Sun)),
            (&[boot], None),
            (&[(450, &[7])], None),
            (&[boot, (450, &[7])], Some(Signature::Mbr)),
            (&[boot, (466, &[7])], Some(Signature::Mbr)),
            (&[boot, (482, &[7])], Some(Signature::Mbr)),
            (&[boot, (498, &[7])], Some(Signature::Mbr)),
            (&[boot, (446, &[0x80]), (466, &[7])], Some(Signature::Mbr)),
            (&[boot, (450, &[7]), (494, &[1])], None),
            (&[boot, (446, &[0x12]), (450, &[7])], None),
        ];
        for (pieces, kind) in rows {
            let head = bytes(HEAD, pieces);
            assert_eq!(partition_table(&head), *kind, "{pieces:?}");
        }
    }

    #[test]
    fn backup_table_is_found_for_both_sectors() {
        for (back, kind) in [(512, Some(Signature::Gpt)), (4096, Some(Signature::Gpt)), (520, None)]
        {
            let tail = bytes(TAIL, &[(TAIL - back, b"EFI PART")]);
            assert_eq!(partition_table_at_end(&tail), kind, "{back}");
        }
        let short = bytes(512, &[(0, b"EFI PART")]);
        assert_eq!(partition_table_at_end(&short), Some(Signature::Gpt));
        assert_eq!(partition_table_at_end(&[]), None);
    }
}
