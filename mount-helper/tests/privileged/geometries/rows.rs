//! The geometries.
use crate::rig::format_options;
use ebs_csi_policy::format_option::ROWS;
use ebs_csi_wire::{FormatOption, FsType};

const GIB: u64 = 1 << 30;

pub(super) enum Make {
    /// A program with its arguments; the disk is the last argument.
    ByHand(&'static str, String),
    ByHelper(Vec<FormatOption>),
}

pub(super) struct Geometry {
    pub(super) name: String,
    pub(super) fs: FsType,
    pub(super) bytes: u64,
    pub(super) sector: u32,
    pub(super) make: Make,
    pub(super) files: u32,
    /// Whether the geometry is tried by default.
    pub(super) slice: bool,
}

impl Geometry {
    /// Returns a geometry on sectors of 512 bytes that is not tried by default.
    fn new(name: &str, fs: FsType, bytes: u64, make: Make) -> Self {
        Self { name: name.to_owned(), fs, bytes, sector: 512, make, files: 300, slice: false }
    }

    pub(super) fn format(&self) -> Vec<FormatOption> {
        match &self.make {
            Make::ByHand(..) => Vec::new(),
            Make::ByHelper(options) => options.clone(),
        }
    }
}

/// One geometry a line: the name, the size, the arguments of the program that makes the file
/// system. A star marks what is tried by default.
const XFS: &str = "
  4 groups | 2 GiB
  16 groups | 4 GiB | -d agcount=16
  31 groups | 8 GiB | -d agcount=31
* 32 groups | 8 GiB | -d agcount=32
  64 groups | 8 GiB | -d agcount=64
  80 groups: 20 GiB grown from 1 | 20 GiB | -d agcount=80
  500 groups | 64 GiB | -d agcount=500
  1000 groups | 128 GiB | -d agcount=1000
* 2000 groups | 256 GiB | -d agcount=2000
  16 MiB | 16 MiB | --unsupported
  64 MiB | 64 MiB | --unsupported
  300 MiB | 300 MiB
  1 TiB | 1 TiB
  16 TiB | 16 TiB
  64 TiB | 64 TiB | -l size=64m
  64 TiB with a log of 2 GiB | 64 TiB
  64 TiB grown from 1 | 64 TiB | -l size=64m -d agsize=64g
  blocks of 512, version 4 | 1 GiB | -m crc=0 -b size=512
  blocks of 1024 | 1 GiB | -b size=1024
  blocks of 2048 | 1 GiB | -b size=2048
  blocks of 8192 | 1 GiB | -b size=8192
  blocks of 16384 | 1 GiB | -b size=16384
  blocks of 65536 | 2 GiB | -b size=65536
  inodes of 256, version 4 | 1 GiB | -m crc=0 -i size=256
  inodes of 2048 | 1 GiB | -i size=2048
  no reflink | 1 GiB | -m reflink=0
* rmapbt | 1 GiB | -m rmapbt=1
  rmapbt, 64 groups | 8 GiB | -m rmapbt=1 -d agcount=64
  nrext64 | 1 GiB | -i nrext64=1
  no sparse inodes | 1 GiB | -i sparse=0
  no inobtcount | 1 GiB | -m inobtcount=0
  directory blocks of 64 KiB | 1 GiB | -n size=65536
  names without case | 1 GiB | -m crc=0 -n version=ci
  no ftype | 1 GiB | -m crc=0 -n ftype=0
* stripes of 64 KiB on 4 disks | 16 GiB | -d su=64k,sw=4
  stripes of 256 KiB on 8 disks | 1 TiB | -d su=256k,sw=8
  stripes, 96 groups | 96 GiB | -d su=256k,sw=8,agcount=96
  log with stripes | 1 GiB | -l su=32k
  sectors of 4096 request for | 1 GiB | -s size=4096
* as xfsprogs of RHEL 7 | 1 GiB | -m finobt=0,reflink=0,bigtime=0,inobtcount=0,rmapbt=0 -i sparse=0
  as xfsprogs of RHEL 6 | 1 GiB | -m crc=0 -n ftype=0 -i attr=2,projid32bit=0
  as xfsprogs of RHEL 8 | 1 GiB | -m reflink=1,bigtime=0,inobtcount=0
  as xfsprogs of Debian 11 | 1 GiB | -m bigtime=0,inobtcount=0
";

/// As [`XFS`].
const EXT: &str = "
  ext2 | 1 GiB | -t ext2
  ext3 | 1 GiB | -t ext3
  ext4 | 1 GiB | -t ext4
  type small | 256 MiB | -t ext4 -T small
  type floppy | 16 MiB | -t ext4 -T floppy
  type big | 1 GiB | -t ext4 -T big
  type huge | 1 GiB | -t ext4 -T huge
  type news | 1 GiB | -t ext4 -T news
  type largefile | 1 GiB | -t ext4 -T largefile
  type largefile4 | 1 GiB | -t ext4 -T largefile4
  type hurd | 1 GiB | -t ext4 -T hurd -I 128
* blocks of 1024 | 1 GiB | -t ext4 -b 1024
  blocks of 2048 | 1 GiB | -t ext4 -b 2048
  blocks of 65536 | 1 GiB | -t ext4 -b 65536
* bigalloc | 1 GiB | -t ext4 -O bigalloc -C 65536
  bigalloc, clusters of 1 MiB | 16 GiB | -t ext4 -O bigalloc -C 1048576
  inline data | 1 GiB | -t ext4 -O inline_data
  casefold | 1 GiB | -t ext4 -O casefold
  encrypt | 1 GiB | -t ext4 -O encrypt
* quota and project | 1 GiB | -t ext4 -O quota,project
  quota of all kinds | 1 GiB | -t ext4 -O quota,project -E quotatype=usrquota:grpquota:prjquota
  64bit off | 1 GiB | -t ext4 -O ^64bit
  no resize_inode | 1 GiB | -t ext4 -O ^resize_inode
  meta_bg | 1 GiB | -t ext4 -O ^resize_inode,meta_bg
  no journal | 1 GiB | -t ext4 -O ^has_journal
  no flex_bg | 1 GiB | -t ext4 -O ^flex_bg
  no metadata_csum | 1 GiB | -t ext4 -O ^metadata_csum
* metadata_csum_seed and orphan_file | 1 GiB | -t ext4 -O metadata_csum_seed,orphan_file
  sparse_super2 | 1 GiB | -t ext4 -O sparse_super2
  ea_inode and large_dir | 1 GiB | -t ext4 -O ea_inode,large_dir
  mmp | 1 GiB | -t ext4 -O mmp
* fast_commit | 1 GiB | -t ext4 -O fast_commit
* fast_commit, 128 KiB of it | 1 GiB | -t ext4 -O fast_commit -J fast_commit_size=128
  packed metadata | 1 GiB | -t ext4 -E packed_meta_blocks=1
  stripes | 16 GiB | -t ext4 -E stride=16,stripe_width=64
  every inode table written | 4 GiB | -t ext4 -E lazy_itable_init=0,lazy_journal_init=0
  inodes of 128 | 1 GiB | -t ext4 -I 128
  journal of 4 MiB | 1 GiB | -t ext4 -J size=4
  as e2fsprogs of Debian 11 | 20 GiB | -t ext4 -O ^metadata_csum_seed,^orphan_file
* as e2fsprogs of RHEL 7 | 20 GiB | -t ext4 -O ^metadata_csum,uninit_bg,64bit
  as e2fsprogs of RHEL 6 | 20 GiB | -t ext4 -O ^metadata_csum,uninit_bg,^64bit -I 256
  ext3 of RHEL 5 | 20 GiB | -t ext3 -O ^64bit -I 128 -b 4096
  16 MiB | 16 MiB | -t ext4
  64 MiB | 64 MiB | -t ext4
  20 GiB | 20 GiB | -t ext4
  ext3, 100 GiB | 100 GiB | -t ext3
  1 TiB | 1 TiB | -t ext4
  12 TiB, 64bit off | 12 TiB | -t ext4 -O ^64bit
  16 TiB | 16 TiB | -t ext4
  64 TiB | 64 TiB | -t ext4
  64 TiB, bigalloc | 64 TiB | -t ext4 -O bigalloc -C 65536
";

/// What the helper makes: the name, the size, the requested type, the options. Each option alone
/// follows, with the example of its row.
const FORMATS: &str = "
  made here, 16 MiB | 16 MiB | ext4
* made here, 1 GiB | 1 GiB | ext4
  made here, 100 GiB | 100 GiB | ext4
  made here, 1 TiB | 1 TiB | ext4
  made here, 16 TiB | 16 TiB | ext4
  made here, 64 TiB | 64 TiB | ext4
  made here, blocks of 1024 | 100 GiB | ext4 | blockSize=1024
  made here, blocks of 1024, 2 TiB | 2 TiB | ext4 | blockSize=1024
  made here, bigalloc | 100 GiB | ext4 | ext4BigAlloc=1 ext4ClusterSize=65536
  made here, bigalloc, 64 TiB | 64 TiB | ext4 | ext4BigAlloc=1 ext4ClusterSize=65536
  made here, many inodes, 4 TiB | 4 TiB | ext4 | bytesPerInode=4096 inodeSize=512
  made here, 1 GiB | 1 GiB | ext3
  made here, 100 GiB | 100 GiB | ext3
* made here, 300 MiB | 300 MiB | xfs
  made here, 100 GiB | 100 GiB | xfs
  made here, 1 TiB | 1 TiB | xfs
  made here, 64 TiB | 64 TiB | xfs
  made here, blocks of 1024 | 100 GiB | xfs | blockSize=1024
";

/// Returns whether a row is tried by default, its name, its size in bytes and its other cells.
fn rows<const N: usize>(
    table: &'static str,
) -> impl Iterator<Item = (bool, &'static str, u64, [&'static str; N])> {
    table.lines().skip(1).map(|line| {
        let (slice, row) = line.split_at_checked(2).expect(line);
        let mut cells = row.split('|').map(str::trim);
        let name = cells.next().expect(line);
        let (number, unit) = cells.next().and_then(|size| size.split_once(' ')).expect(line);
        let shift = match unit {
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => panic!("{line}"),
        };
        let bytes = number.parse::<u64>().expect(line) << shift;
        let rest = std::array::from_fn(|_| cells.next().unwrap_or(""));
        (slice == "* ", name, bytes, rest)
    })
}

fn options(text: &str) -> Vec<FormatOption> {
    let given = text.split_whitespace().map(|option| {
        let (key, value) = option.split_once('=').expect(option);
        (key, value.parse().expect(option))
    });
    format_options(&given.collect::<Vec<_>>())
}

pub(super) fn all() -> Vec<Geometry> {
    let mut all = Vec::new();
    for (fs, program, always, plain, table) in [
        (FsType::Xfs, "mkfs.xfs", "-q -f", "-q", XFS),
        (FsType::Ext4, "mke2fs", "-q -F", "-q -F -t ext4", EXT),
    ] {
        let by_hand = |name: &str, bytes, line: String| {
            Geometry::new(name, fs, bytes, Make::ByHand(program, line))
        };
        all.extend(rows(table).map(|(slice, name, bytes, [arguments])| Geometry {
            slice,
            ..by_hand(name, bytes, format!("{always} {arguments}"))
        }));
        let sectors = by_hand("on sectors of 4096", GIB, plain.to_owned());
        all.push(Geometry { sector: 4096, slice: true, ..sectors });
        let many = by_hand("200000 files", 4 * GIB, plain.to_owned());
        all.push(Geometry { files: 200_000, ..many });
    }
    all.extend(rows(FORMATS).map(|(slice, name, bytes, [fs, given])| {
        let fs = FsType::parse(fs).expect(fs);
        Geometry { slice, ..Geometry::new(name, fs, bytes, Make::ByHelper(options(given))) }
    }));
    for fs in FsType::ALL.iter().copied() {
        all.extend(ROWS.iter().filter(|row| row.on(fs).is_some()).map(|row| {
            let required = row.requires.map(|switch| (switch, 1));
            let given: Vec<_> = required.into_iter().chain([(row.key, row.example)]).collect();
            let name = format!("made here with {}", row.key);
            Geometry::new(&name, fs, GIB, Make::ByHelper(format_options(&given)))
        }));
    }
    all
}
