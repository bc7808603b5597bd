//! The mutations of a base. The same seed gives the same mutation.
use super::image::{BLOCK, Image};
use crate::rig::{MIB, Random};
use ebs_csi_mount_helper::disk::content::crc32c;

const EXT: u64 = 1024;

pub(super) type Mutate = fn(&mut Image, &mut Random);

/// Each mutation with its name in a recipe.
pub(super) const ALL: [(&str, Mutate); 11] = [
    ("plain", enlarge),
    ("truncate", truncate),
    ("flip-head", flip_head),
    ("flip-deep", flip_deep),
    ("superblock-field", change_superblock_field),
    ("lying-size", change_block_count),
    ("loop", add_extent_loop),
    ("wipe-head", wipe_head),
    ("remains", wipe_most),
    ("second-signature", add_signature),
    ("shuffle", copy_block),
];

/// Leaves the tool's image unchanged, on a disk that is a little larger.
fn enlarge(image: &mut Image, _: &mut Random) {
    image.resize(image.size + BLOCK);
}

fn truncate(image: &mut Image, random: &mut Random) {
    let sectors = image.size / 512;
    // Short disks are as likely as long ones.
    let bits = random.below(u64::from(sectors.ilog2())) + 1;
    let kept = random.below(1 << bits).max(1);
    image.resize(kept.min(sectors - 1) * 512);
}

fn flip_head(image: &mut Image, random: &mut Random) {
    for _ in 0..=random.below(64) {
        let at = random.below(MIB.min(image.size));
        flip(image, at, random);
    }
}

/// Flips some bits of the blocks that are not zero: superblocks and their backups, groups,
/// tables.
fn flip_deep(image: &mut Image, random: &mut Random) {
    let set = image.set();
    for _ in 0..=random.below(32) {
        let block = set[random.below(set.len() as u64) as usize];
        let at = (block + random.below(BLOCK)).min(image.size - 1);
        flip(image, at, random);
    }
}

/// Changes one number of the superblock, and corrects the superblock's checksum.
fn change_superblock_field(image: &mut Image, random: &mut Random) {
    let (start, length) = if is_xfs(image) { (0, 264) } else { (EXT, 0x280) };
    let at = start + random.below(length / 4) * 4;
    let value = match random.below(4) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << random.below(32),
        _ => random.next() as u32,
    };
    let value = value ^ u32::from(image.get(at, 4) == value.to_le_bytes());
    image.put(at, &value.to_le_bytes());
    correct_checksum(image);
}

/// Makes the number of blocks wrong, and corrects the checksum.
fn change_block_count(image: &mut Image, random: &mut Random) {
    let blocks = match random.below(4) {
        0 => 0,
        1 => u64::from(u32::MAX),
        2 => 1 + random.below(64),
        _ => image.size / 1024 * (1 + random.below(64)),
    };
    if is_xfs(image) {
        image.put(8, &blocks.to_be_bytes());
    } else {
        let low = u32::try_from(blocks & 0xffff_ffff).unwrap_or(u32::MAX);
        image.put(EXT + 4, &low.to_le_bytes());
    }
    image.resize(image.size + BLOCK);
    correct_checksum(image);
}

fn wipe_head(image: &mut Image, random: &mut Random) {
    let length = BLOCK << random.below(11);
    let length = length.min(image.size);
    image.put(0, &vec![0; usize::try_from(length).unwrap_or(0)]);
}

fn wipe_most(image: &mut Image, random: &mut Random) {
    let set = image.set();
    let kept = random.below(set.len() as u64) as usize;
    for (index, block) in set.into_iter().enumerate() {
        if index != kept && !(index + kept).is_multiple_of(7) {
            image.put(block, &[0; BLOCK as usize]);
        }
    }
    image.resize(image.size + BLOCK);
}

fn add_signature(image: &mut Image, random: &mut Random) {
    let strangers: [(u64, &[u8]); 8] = [
        (0, b"LUKS\xba\xbe"),
        (0, b"XFSB"),
        (512, b"EFI PART"),
        (1024 + 56, b"\x53\xef"),
        (0x1_0040, b"_BHRfS_M"),
        (4086, b"SWAPSPACE2"),
        (32769, b"CD001"),
        (536, b"LVM2 001"),
    ];
    let (at, bytes) = strangers[random.below(8) as usize];
    image.put(at, bytes);
    image.resize(image.size + BLOCK);
}

fn copy_block(image: &mut Image, random: &mut Random) {
    let set = image.set();
    let pick = |random: &mut Random| set[random.below(set.len() as u64) as usize];
    let (from, to) = (pick(random), pick(random));
    let bytes = image.get(from, BLOCK as usize);
    image.put(to, &bytes);
    image.resize(image.size + BLOCK);
}

fn flip(image: &mut Image, at: u64, random: &mut Random) {
    let byte = image.get(at, 1)[0] ^ (1 << random.below(8));
    image.put(at, &[byte]);
}

fn is_xfs(image: &Image) -> bool {
    image.get(0, 4) == b"XFSB"
}

/// Corrects the checksum of a superblock that has one, so that the crafted content passes the first
/// check.
fn correct_checksum(image: &mut Image) {
    if is_xfs(image) {
        let mut sector = image.get(0, 512);
        sector[224..228].fill(0);
        image.put(224, &(!crc32c(!0, &sector)).to_le_bytes());
    } else if image.get(EXT + 0x38, 2) == [0x53, 0xef] && image.get(EXT + 0x65, 1)[0] & 4 != 0 {
        let superblock = image.get(EXT, 0x3fc);
        image.put(EXT + 0x3fc, &crc32c(!0, &superblock).to_le_bytes());
    }
}

/// Gives an inode an extent tree whose only entry leads to the block of inodes itself, or an extent
/// that covers the metadata.
fn add_extent_loop(image: &mut Image, random: &mut Random) {
    let number = |image: &Image, at: u64| {
        u32::from_le_bytes(image.get(at, 4).try_into().unwrap_or_default())
    };
    let block = 1024_u64 << number(image, EXT + 0x18).min(6);
    let descriptor = (u64::from(number(image, EXT + 0x14)) + 1) * block;
    let table = number(image, descriptor + 8);
    let inode_bytes = u64::from(number(image, EXT + 0x58) & 0xffff).max(128);
    let inode = [2, 8, 11, 12, 13][random.below(5) as usize];
    let at = u64::from(table) * block + (inode - 1) * inode_bytes + 40;
    let (depth, words): (u16, &[u32]) = if random.below(2) == 0 {
        (u16::try_from(1 + random.below(5)).unwrap_or(1), &[0, 0, table, 0])
    } else {
        (0, &[0, 0, 0x0000_7fff, 0, table, 0])
    };
    // Magic, one entry of four, depth.
    let halves = [0xf30a_u16, 1, 4, depth].into_iter().flat_map(u16::to_le_bytes);
    let tree: Vec<u8> = halves.chain(words.iter().flat_map(|word| word.to_le_bytes())).collect();
    image.put(at.min(image.size.saturating_sub(64)), &tree);
    image.resize(image.size + BLOCK);
}
