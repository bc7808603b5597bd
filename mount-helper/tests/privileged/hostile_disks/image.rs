//! The bases of recipes: small images that the real tools make, kept as the blocks that are not
//! zero.
use crate::rig::{MIB, Random, shell, sparse_file, text};
use ebs_csi_wire::FsType;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) const BLOCK: u64 = 4096;

/// A disk: its size in bytes, and its blocks that are not zero.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Image {
    pub(super) size: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    pub(super) fn blank(size: u64) -> Self {
        Self { size, blocks: BTreeMap::new() }
    }

    /// Returns a disk of 16 MiB: zeros but for these bytes.
    fn with(pieces: &[(u64, &[u8])]) -> Self {
        let mut image = Self::blank(16 * MIB);
        pieces.iter().for_each(|(at, bytes)| image.put(*at, bytes));
        image
    }

    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("image");
        let mut image = Self::blank(bytes.len() as u64);
        for (index, block) in bytes.chunks(BLOCK as usize).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                image.put(index as u64 * BLOCK, block);
            }
        }
        image
    }

    pub(super) fn write(&self, path: &Path) {
        let file = fs::File::create(path).expect("image");
        file.set_len(self.size).expect("set_len");
        for (index, block) in &self.blocks {
            let left = usize::try_from(self.size - index * BLOCK).unwrap_or(usize::MAX);
            file.write_all_at(&block[..left.min(block.len())], index * BLOCK).expect("write");
        }
    }

    pub(super) fn is_blank(&self) -> bool {
        self.blocks.values().flatten().all(|byte| *byte == 0)
    }

    pub(super) fn get(&self, at: u64, length: usize) -> Vec<u8> {
        (at..at + length as u64)
            .map(|at| {
                self.blocks.get(&(at / BLOCK)).map_or(0, |block| block[(at % BLOCK) as usize])
            })
            .collect()
    }

    /// Writes bytes at an offset; bytes beyond the end are left out.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at..self.size).zip(bytes) {
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
            block[(at % BLOCK) as usize] = *byte;
        }
    }

    /// Shortens or enlarges the disk.
    pub(super) fn resize(&mut self, size: u64) {
        self.size = size;
        self.blocks.retain(|index, _| index * BLOCK < size);
        if let Some(mut last) = self.blocks.last_entry() {
            let left = usize::try_from(size - last.key() * BLOCK).unwrap_or(usize::MAX);
            let length = last.get().len();
            last.get_mut()[left.min(length)..].fill(0);
        }
    }

    /// Returns the offsets of the blocks that are not zero.
    pub(super) fn set(&self) -> Vec<u64> {
        self.blocks.keys().map(|index| index * BLOCK).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Base {
    Ext4,
    Ext4SmallBlocks,
    Ext4NoChecksums,
    Ext4Unreplayed,
    Ext3,
    Ext2,
    Xfs,
    Gpt,
    Mbr,
    Swap,
    Btrfs,
    Vfat,
    Luks,
    Lvm,
    Noise,
}

impl Base {
    pub(super) const ALL: [Self; 15] = [
        Self::Ext4,
        Self::Ext4SmallBlocks,
        Self::Ext4NoChecksums,
        Self::Ext4Unreplayed,
        Self::Ext3,
        Self::Ext2,
        Self::Xfs,
        Self::Gpt,
        Self::Mbr,
        Self::Swap,
        Self::Btrfs,
        Self::Vfat,
        Self::Luks,
        Self::Lvm,
        Self::Noise,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext4SmallBlocks => "ext4-1k",
            Self::Ext4NoChecksums => "ext4-nocsum",
            Self::Ext4Unreplayed => "ext4-journal",
            Self::Ext3 => "ext3",
            Self::Ext2 => "ext2",
            Self::Xfs => "xfs",
            Self::Gpt => "gpt",
            Self::Mbr => "mbr",
            Self::Swap => "swap",
            Self::Btrfs => "btrfs",
            Self::Vfat => "vfat",
            Self::Luks => "luks",
            Self::Lvm => "lvm",
            Self::Noise => "noise",
        }
    }

    /// Returns the file system type that a request for this base names.
    pub(super) fn fs(self) -> FsType {
        match self {
            Self::Xfs => FsType::Xfs,
            _ => FsType::Ext4,
        }
    }

    /// Makes the image, or returns `None` when its tool is not installed. Only a tool's image is
    /// written to a file; `directory` holds the content of its files.
    pub(super) fn make(self, directory: &Path) -> Option<Image> {
        let tree = directory.join("tree");
        if !tree.exists() {
            fs::create_dir_all(tree.join("a/b")).expect("mkdir");
            fs::write(tree.join("a/large"), vec![0x61; 300_000]).expect("write");
            fs::write(tree.join("a/b/small"), "small").expect("write");
        }
        let tree = text(&tree);
        let ext = |arguments: &[&str]| {
            let all = [&["-q", "-F", "-d", tree], arguments].concat();
            tool(directory, 64 * MIB, "mke2fs", &all, &[])
        };
        match self {
            Self::Ext4 => ext(&["-t", "ext4"]),
            Self::Ext4SmallBlocks => ext(&["-t", "ext4", "-b", "1024"]),
            Self::Ext4NoChecksums => ext(&["-t", "ext4", "-O", "^metadata_csum"]),
            Self::Ext4Unreplayed => {
                ext(&["-t", "ext4"])?;
                let path = directory.join("image");
                shell("debugfs", &["-w", "-R", "feature needs_recovery", text(&path)]);
                Some(Image::read(&path))
            }
            Self::Ext3 => ext(&["-t", "ext3"]),
            Self::Ext2 => ext(&["-t", "ext2"]),
            Self::Xfs => tool(directory, 320 * MIB, "mkfs.xfs", &["-q"], &[]),
            Self::Gpt => tool(directory, 16 * MIB, "sfdisk", &["-q"], b"label: gpt\n,8M\n,\n"),
            Self::Mbr => tool(directory, 16 * MIB, "sfdisk", &["-q"], b"label: dos\n,8M\n,\n"),
            Self::Swap => tool(directory, 16 * MIB, "mkswap", &["-q"], &[]),
            Self::Btrfs => tool(directory, 128 * MIB, "mkfs.btrfs", &["-q"], &[]),
            Self::Vfat => tool(directory, 16 * MIB, "mkfs.vfat", &[], &[]),
            Self::Luks => {
                Some(Image::with(&[(0, b"LUKS\xba\xbe\0\x02"), (0x4000, b"SKUL\xba\xbe\0\x02")]))
            }
            Self::Lvm => {
                Some(Image::with(&[(512, b"LABELONE\x01\0\0\0\0\0\0\0"), (536, b"LVM2 001")]))
            }
            Self::Noise => {
                let mut random = Random::of("noise");
                let bytes: Vec<u8> = (0..64 << 10).map(|_| random.below(256) as u8).collect();
                Some(Image::with(&[(0, &bytes)]))
            }
        }
    }
}

fn tool(
    directory: &Path,
    size: u64,
    name: &str,
    arguments: &[&str],
    input: &[u8],
) -> Option<Image> {
    use std::io::Write;
    let path = directory.join("image");
    sparse_file(&path, size);
    let child = Command::new(name)
        .args(arguments)
        .arg(&path)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        println!("left out: {name} is not installed");
        return None;
    };
    child.stdin.take()?.write_all(input).expect("stdin");
    assert!(child.wait().expect("wait").success(), "{name} {arguments:?}");
    Some(Image::read(&path))
}
