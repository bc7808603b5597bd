//! The keys that choose how a file system is made.

use ebs_csi_wire::FsType::{self, Ext3, Ext4, Xfs};

use crate::row::{Form, Row};

const ANY_TEXT: &str = "any letters and digits";

const EXT: &[FsType] = &[Ext4, Ext3];
const EXT4: &[FsType] = &[Ext4];

/// In the order of the refusal that lists them.
pub(crate) const ROWS: &[Row] = &[
    Row {
        key: "blockSize",
        form: Form::FormatNumber { least: 1024, most: 65_536, is_power_of_two: true },
        default: "4096 from 1 GiB on",
        file_systems: &[Ext4, Ext3, Xfs],
        go_driver: ANY_TEXT,
        example: "4096",
        meaning: "Bytes of a block. A node mounts no more than the page of its kernel.",
        ..Row::NONE
    },
    Row {
        key: "inodeSize",
        form: Form::FormatNumber { least: 128, most: 65_536, is_power_of_two: true },
        default: "256; xfs 512",
        file_systems: &[Ext4, Ext3, Xfs],
        go_driver: ANY_TEXT,
        example: "512",
        meaning: "Bytes of an inode, at most the block; xfs from 512 to 2048, at most half of the block.",
        ..Row::NONE
    },
    Row {
        key: "bytesPerInode",
        form: Form::FormatNumber { least: 1024, most: 67_108_864, is_power_of_two: false },
        default: "16384",
        file_systems: EXT,
        go_driver: ANY_TEXT,
        example: "8192",
        meaning: "For how many bytes of the disk there is an inode.",
        ..Row::NONE
    },
    Row {
        key: "numberOfInodes",
        form: Form::FormatNumber { least: 1, most: 4_294_967_295, is_power_of_two: false },
        default: "by `bytesPerInode`",
        file_systems: EXT,
        go_driver: ANY_TEXT,
        example: "100000",
        meaning: "The number of inodes.",
        ..Row::NONE
    },
    Row {
        key: "ext4BigAlloc",
        form: Form::Switch,
        default: "false",
        file_systems: EXT4,
        example: "true",
        meaning: "Allocates clusters of several blocks.",
        ..Row::NONE
    },
    Row {
        key: "ext4ClusterSize",
        form: Form::FormatNumber { least: 2048, most: 268_435_456, is_power_of_two: true },
        default: "16 blocks",
        file_systems: EXT4,
        go_driver: ANY_TEXT,
        example: "16384",
        example_with: &[("ext4BigAlloc", "true")],
        meaning: "Bytes of a cluster.",
    },
    Row {
        key: "ext4EncryptionSupport",
        form: Form::Switch,
        default: "false",
        file_systems: EXT4,
        example: "true",
        meaning: "Makes a file system whose directories can be encrypted.",
        ..Row::NONE
    },
];
