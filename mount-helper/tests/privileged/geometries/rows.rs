//! The geometries.
use ebs_csi_wire::format::UncheckedFormatOptions;
use ebs_csi_wire::{FormatOptions, FsType};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// What makes the file system.
pub(super) enum Make {
    /// A program with its arguments; the disk is the last argument.
    ByHand(&'static str, &'static str),
    /// The helper.
    ByHelper(UncheckedFormatOptions),
}

pub(super) struct Geometry {
    pub(super) name: &'static str,
    /// The requested file system type.
    pub(super) fs: FsType,
    pub(super) bytes: u64,
    pub(super) sector: u32,
    pub(super) make: Make,
    /// Number of files that are written to the file system.
    pub(super) files: u32,
    /// Whether the geometry is tried by default.
    pub(super) slice: bool,
}

impl Geometry {
    pub(super) fn format(&self) -> FormatOptions {
        match &self.make {
            Make::ByHand(..) => FormatOptions::default(),
            Make::ByHelper(options) => FormatOptions::check(*options).expect("options"),
        }
    }
}

/// The name, the size, the arguments of the program that makes the file system, and whether it is
/// tried by default.
type Row = (&'static str, u64, &'static str, bool);

const XFS: &[Row] = &[
    ("4 groups", 2 * GIB, "", false),
    ("16 groups", 4 * GIB, "-d agcount=16", false),
    ("31 groups", 8 * GIB, "-d agcount=31", false),
    ("32 groups", 8 * GIB, "-d agcount=32", true),
    ("64 groups", 8 * GIB, "-d agcount=64", false),
    (
        "80 groups: 20 GiB grown from 1",
        20 * GIB,
        "-d agcount=80",
        false,
    ),
    ("500 groups", 64 * GIB, "-d agcount=500", false),
    ("1000 groups", 128 * GIB, "-d agcount=1000", false),
    ("2000 groups", 256 * GIB, "-d agcount=2000", true),
    ("16 MiB", 16 * MIB, "--unsupported", false),
    ("64 MiB", 64 * MIB, "--unsupported", false),
    ("300 MiB", 300 * MIB, "", false),
    ("1 TiB", TIB, "", false),
    ("16 TiB", 16 * TIB, "", false),
    ("64 TiB", 64 * TIB, "-l size=64m", false),
    ("64 TiB with a log of 2 GiB", 64 * TIB, "", false),
    (
        "64 TiB grown from 1",
        64 * TIB,
        "-l size=64m -d agsize=64g",
        false,
    ),
    (
        "blocks of 512, version 4",
        GIB,
        "-m crc=0 -b size=512",
        false,
    ),
    ("blocks of 1024", GIB, "-b size=1024", false),
    ("blocks of 2048", GIB, "-b size=2048", false),
    ("blocks of 8192", GIB, "-b size=8192", false),
    ("blocks of 16384", GIB, "-b size=16384", false),
    ("blocks of 65536", 2 * GIB, "-b size=65536", false),
    (
        "inodes of 256, version 4",
        GIB,
        "-m crc=0 -i size=256",
        false,
    ),
    ("inodes of 2048", GIB, "-i size=2048", false),
    ("no reflink", GIB, "-m reflink=0", false),
    ("rmapbt", GIB, "-m rmapbt=1", true),
    (
        "rmapbt, 64 groups",
        8 * GIB,
        "-m rmapbt=1 -d agcount=64",
        false,
    ),
    ("nrext64", GIB, "-i nrext64=1", false),
    ("no sparse inodes", GIB, "-i sparse=0", false),
    ("no inobtcount", GIB, "-m inobtcount=0", false),
    ("directory blocks of 64 KiB", GIB, "-n size=65536", false),
    ("names without case", GIB, "-m crc=0 -n version=ci", false),
    ("no ftype", GIB, "-m crc=0 -n ftype=0", false),
    (
        "stripes of 64 KiB on 4 disks",
        16 * GIB,
        "-d su=64k,sw=4",
        true,
    ),
    (
        "stripes of 256 KiB on 8 disks",
        TIB,
        "-d su=256k,sw=8",
        false,
    ),
    (
        "stripes, 96 groups",
        96 * GIB,
        "-d su=256k,sw=8,agcount=96",
        false,
    ),
    ("log with stripes", GIB, "-l su=32k", false),
    ("sectors of 4096 asked for", GIB, "-s size=4096", false),
    (
        "as xfsprogs of RHEL 7",
        GIB,
        "-m finobt=0,reflink=0,bigtime=0,inobtcount=0,rmapbt=0 -i sparse=0",
        true,
    ),
    (
        "as xfsprogs of RHEL 6",
        GIB,
        "-m crc=0 -n ftype=0 -i attr=2,projid32bit=0",
        false,
    ),
    (
        "as xfsprogs of RHEL 8",
        GIB,
        "-m reflink=1,bigtime=0,inobtcount=0",
        false,
    ),
    (
        "as xfsprogs of Debian 11",
        GIB,
        "-m bigtime=0,inobtcount=0",
        false,
    ),
];

const EXT: &[Row] = &[
    ("ext2", GIB, "-t ext2", false),
    ("ext3", GIB, "-t ext3", false),
    ("ext4", GIB, "-t ext4", false),
    ("type small", 256 * MIB, "-t ext4 -T small", false),
    ("type floppy", 16 * MIB, "-t ext4 -T floppy", false),
    ("type big", GIB, "-t ext4 -T big", false),
    ("type huge", GIB, "-t ext4 -T huge", false),
    ("type news", GIB, "-t ext4 -T news", false),
    ("type largefile", GIB, "-t ext4 -T largefile", false),
    ("type largefile4", GIB, "-t ext4 -T largefile4", false),
    ("type hurd", GIB, "-t ext4 -T hurd -I 128", false),
    ("blocks of 1024", GIB, "-t ext4 -b 1024", true),
    ("blocks of 2048", GIB, "-t ext4 -b 2048", false),
    ("blocks of 65536", GIB, "-t ext4 -b 65536", false),
    ("bigalloc", GIB, "-t ext4 -O bigalloc -C 65536", true),
    (
        "bigalloc, clusters of 1 MiB",
        16 * GIB,
        "-t ext4 -O bigalloc -C 1048576",
        false,
    ),
    ("inline data", GIB, "-t ext4 -O inline_data", false),
    ("casefold", GIB, "-t ext4 -O casefold", false),
    ("encrypt", GIB, "-t ext4 -O encrypt", false),
    ("quota and project", GIB, "-t ext4 -O quota,project", true),
    (
        "quota of all kinds",
        GIB,
        "-t ext4 -O quota,project -E quotatype=usrquota:grpquota:prjquota",
        false,
    ),
    ("64bit off", GIB, "-t ext4 -O ^64bit", false),
    ("no resize_inode", GIB, "-t ext4 -O ^resize_inode", false),
    ("meta_bg", GIB, "-t ext4 -O ^resize_inode,meta_bg", false),
    ("no journal", GIB, "-t ext4 -O ^has_journal", false),
    ("no flex_bg", GIB, "-t ext4 -O ^flex_bg", false),
    ("no metadata_csum", GIB, "-t ext4 -O ^metadata_csum", false),
    (
        "metadata_csum_seed and orphan_file",
        GIB,
        "-t ext4 -O metadata_csum_seed,orphan_file",
        true,
    ),
    ("sparse_super2", GIB, "-t ext4 -O sparse_super2", false),
    (
        "ea_inode and large_dir",
        GIB,
        "-t ext4 -O ea_inode,large_dir",
        false,
    ),
    ("mmp", GIB, "-t ext4 -O mmp", false),
    ("fast_commit", GIB, "-t ext4 -O fast_commit", false),
    (
        "packed metadata",
        GIB,
        "-t ext4 -E packed_meta_blocks=1",
        false,
    ),
    (
        "stripes",
        16 * GIB,
        "-t ext4 -E stride=16,stripe_width=64",
        false,
    ),
    (
        "every inode table written",
        4 * GIB,
        "-t ext4 -E lazy_itable_init=0,lazy_journal_init=0",
        false,
    ),
    ("inodes of 128", GIB, "-t ext4 -I 128", false),
    ("journal of 4 MiB", GIB, "-t ext4 -J size=4", false),
    (
        "as e2fsprogs of Debian 11",
        20 * GIB,
        "-t ext4 -O ^metadata_csum_seed,^orphan_file",
        false,
    ),
    (
        "as e2fsprogs of RHEL 7",
        20 * GIB,
        "-t ext4 -O ^metadata_csum,uninit_bg,64bit",
        true,
    ),
    (
        "as e2fsprogs of RHEL 6",
        20 * GIB,
        "-t ext4 -O ^metadata_csum,uninit_bg,^64bit -I 256",
        false,
    ),
    (
        "ext3 of RHEL 5",
        20 * GIB,
        "-t ext3 -O ^64bit -I 128 -b 4096",
        false,
    ),
    ("16 MiB", 16 * MIB, "-t ext4", false),
    ("64 MiB", 64 * MIB, "-t ext4", false),
    ("20 GiB", 20 * GIB, "-t ext4", false),
    ("ext3, 100 GiB", 100 * GIB, "-t ext3", false),
    ("1 TiB", TIB, "-t ext4", false),
    ("12 TiB, 64bit off", 12 * TIB, "-t ext4 -O ^64bit", false),
    ("16 TiB", 16 * TIB, "-t ext4", false),
    ("64 TiB", 64 * TIB, "-t ext4", false),
    (
        "64 TiB, bigalloc",
        64 * TIB,
        "-t ext4 -O bigalloc -C 65536",
        false,
    ),
];

/// Returns the requested type, the name, the size, the options and whether it is tried by default.
fn formats() -> Vec<(FsType, &'static str, u64, UncheckedFormatOptions, bool)> {
    use FsType::{Ext3, Ext4, Xfs};
    let none = UncheckedFormatOptions::default();
    let small_blocks = UncheckedFormatOptions {
        block_size: 1024,
        ..none
    };
    let clusters = UncheckedFormatOptions {
        ext4_bigalloc: true,
        ext4_cluster_size: 65_536,
        ..none
    };
    let many_inodes = UncheckedFormatOptions {
        bytes_per_inode: 4096,
        inode_size: 512,
        ..none
    };
    let old = UncheckedFormatOptions {
        legacy_xfs: true,
        ..none
    };
    vec![
        (Ext4, "made here, 16 MiB", 16 * MIB, none, false),
        (Ext4, "made here, 1 GiB", GIB, none, true),
        (Ext4, "made here, 100 GiB", 100 * GIB, none, false),
        (Ext4, "made here, 1 TiB", TIB, none, false),
        (Ext4, "made here, 16 TiB", 16 * TIB, none, false),
        (Ext4, "made here, 64 TiB", 64 * TIB, none, false),
        (
            Ext4,
            "made here, blocks of 1024",
            100 * GIB,
            small_blocks,
            false,
        ),
        (
            Ext4,
            "made here, blocks of 1024, 2 TiB",
            2 * TIB,
            small_blocks,
            false,
        ),
        (Ext4, "made here, bigalloc", 100 * GIB, clusters, false),
        (
            Ext4,
            "made here, bigalloc, 64 TiB",
            64 * TIB,
            clusters,
            false,
        ),
        (
            Ext4,
            "made here, many inodes, 4 TiB",
            4 * TIB,
            many_inodes,
            false,
        ),
        (Ext3, "made here, 1 GiB", GIB, none, false),
        (Ext3, "made here, 100 GiB", 100 * GIB, none, false),
        (Xfs, "made here, 300 MiB", 300 * MIB, none, true),
        (Xfs, "made here, 100 GiB", 100 * GIB, none, false),
        (Xfs, "made here, 1 TiB", TIB, none, false),
        (Xfs, "made here, 64 TiB", 64 * TIB, none, false),
        (Xfs, "made here, for old kernels", GIB, old, false),
        (
            Xfs,
            "made here, blocks of 1024",
            100 * GIB,
            small_blocks,
            false,
        ),
    ]
}

pub(super) fn all() -> Vec<Geometry> {
    let mut all = Vec::new();
    for (fs, program, always, rows) in [
        (FsType::Xfs, "mkfs.xfs", "-q -f", XFS),
        (FsType::Ext4, "mke2fs", "-q -F", EXT),
    ] {
        for (name, bytes, arguments, slice) in rows {
            let line: &'static str = Box::leak(format!("{always} {arguments}").into_boxed_str());
            all.push(Geometry {
                name,
                fs,
                bytes: *bytes,
                sector: 512,
                make: Make::ByHand(program, line),
                files: 300,
                slice: *slice,
            });
        }
        all.push(Geometry {
            name: "on sectors of 4096",
            fs,
            bytes: GIB,
            sector: 4096,
            make: Make::ByHand(
                program,
                if fs == FsType::Xfs {
                    "-q"
                } else {
                    "-q -F -t ext4"
                },
            ),
            files: 300,
            slice: true,
        });
        all.push(Geometry {
            name: "200000 files",
            fs,
            bytes: 4 * GIB,
            sector: 512,
            make: Make::ByHand(
                program,
                if fs == FsType::Xfs {
                    "-q"
                } else {
                    "-q -F -t ext4"
                },
            ),
            files: 200_000,
            slice: false,
        });
    }
    for (fs, name, bytes, options, slice) in formats() {
        all.push(Geometry {
            name,
            fs,
            bytes,
            sector: 512,
            make: Make::ByHelper(options),
            files: 300,
            slice,
        });
    }
    all
}
