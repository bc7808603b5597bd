//! The bases of recipes: small images that the real tools make, kept as the blocks that are not
//! zero.
use crate::rig::{MIB, Random, shell, sparse_file, text};
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

    pub(super) fn resize(&mut self, size: u64) {
        self.size = size;
        self.blocks.retain(|index, _| index * BLOCK < size);
        if let Some(mut last) = self.blocks.last_entry() {
            let left = usize::try_from(size - last.key() * BLOCK).unwrap_or(usize::MAX);
            let length = last.get().len();
            last.get_mut()[left.min(length)..].fill(0);
        }
    }

    pub(super) fn set(&self) -> Vec<u64> {
        self.blocks.keys().map(|index| index * BLOCK).collect()
    }
}

/// What a recipe begins with.
pub(super) enum Base {
    /// A file system by mke2fs, with these arguments.
    Ext(&'static [&'static str]),
    /// An ext4 whose journal was not replayed.
    Unreplayed,
    /// What another tool makes on a disk of so many MiB, with these arguments and this input.
    Tool(u64, &'static str, &'static [&'static str], &'static [u8]),
    /// Zeros but for these bytes at these offsets.
    Pieces(&'static [(u64, &'static [u8])]),
    Noise,
}

/// Each base with its name in a recipe.
pub(super) static BASES: [(&str, Base); 15] = [
    ("ext4", Base::Ext(&["-t", "ext4"])),
    ("ext4-1k", Base::Ext(&["-t", "ext4", "-b", "1024"])),
    ("ext4-nocsum", Base::Ext(&["-t", "ext4", "-O", "^metadata_csum"])),
    ("ext4-journal", Base::Unreplayed),
    ("ext3", Base::Ext(&["-t", "ext3"])),
    ("ext2", Base::Ext(&["-t", "ext2"])),
    ("xfs", Base::Tool(320, "mkfs.xfs", &["-q"], &[])),
    ("gpt", Base::Tool(16, "sfdisk", &["-q"], b"label: gpt\n,8M\n,\n")),
    ("mbr", Base::Tool(16, "sfdisk", &["-q"], b"label: dos\n,8M\n,\n")),
    ("swap", Base::Tool(16, "mkswap", &["-q"], &[])),
    ("btrfs", Base::Tool(128, "mkfs.btrfs", &["-q"], &[])),
    ("vfat", Base::Tool(16, "mkfs.vfat", &[], &[])),
    ("luks", Base::Pieces(&[(0, b"LUKS\xba\xbe\0\x02"), (0x4000, b"SKUL\xba\xbe\0\x02")])),
    ("lvm", Base::Pieces(&[(512, b"LABELONE\x01\0\0\0\0\0\0\0"), (536, b"LVM2 001")])),
    ("noise", Base::Noise),
];

impl Base {
    /// Makes the image, or returns `None` when its tool is not installed. Only a tool's image is
    /// written to a file; `directory` holds the content of its files.
    pub(super) fn make(&self, directory: &Path) -> Option<Image> {
        let tree = directory.join("tree");
        if !tree.exists() {
            fs::create_dir_all(tree.join("a/b")).expect("mkdir");
            fs::write(tree.join("a/large"), vec![0x61; 300_000]).expect("write");
            fs::write(tree.join("a/b/small"), "small").expect("write");
        }
        let ext = |arguments: &[&str]| {
            let all = [&["-q", "-F", "-d", text(&tree)], arguments].concat();
            tool(directory, 64 * MIB, "mke2fs", &all, &[])
        };
        match *self {
            Self::Ext(arguments) => ext(arguments),
            Self::Unreplayed => {
                ext(&["-t", "ext4"])?;
                let path = directory.join("image");
                shell("debugfs", &["-w", "-R", "feature needs_recovery", text(&path)]);
                Some(Image::read(&path))
            }
            Self::Tool(size, name, arguments, input) => {
                tool(directory, size * MIB, name, arguments, input)
            }
            Self::Pieces(pieces) => Some(Image::with(pieces)),
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
