//! The helper's names for the content of a disk.

use crate::FsType;
use crate::closed::{closed_enum, described_enum};

described_enum! {
    /// The signature on a disk.
    Signature mirrors Signature, "signature";
    /// Describes the content for a person.
    describe {
        Ext2 => "ext2", "an ext2 file system";
        Ext3 => "ext3", "an ext3 file system";
        Ext4 => "ext4", "an ext4 file system";
        Xfs => "xfs", "an XFS file system";
        ExtAndXfs => "ext-and-xfs", "the superblocks of an ext and of an XFS file system";
        ExtJournal => "ext-journal", "the external journal of an ext file system";
        XfsLog => "xfs-log", "the external log of an XFS file system";
        Btrfs => "btrfs", "a btrfs file system";
        Zfs => "zfs", "a ZFS pool";
        Gpt => "gpt", "a GUID partition table (GPT)";
        Mbr => "mbr", "a DOS partition table (MBR)";
        Apm => "apm", "an Apple partition map";
        Bsd => "bsd", "a BSD disk label";
        Sun => "sun", "a Sun disk label";
        Luks => "luks", "a LUKS header (an encrypted volume)";
        Bitlocker => "bitlocker", "a BitLocker header (an encrypted volume)";
        Lvm2 => "lvm2", "the label of an LVM2 physical volume";
        Md => "md", "the superblock of a Linux software RAID (md)";
        Ddf => "ddf", "the anchor of a DDF RAID";
        Drbd => "drbd", "the metadata of a DRBD device";
        Bcache => "bcache", "the superblock of a bcache device";
        Vdo => "vdo", "the geometry block of a VDO device";
        Stratis => "stratis", "the header of a Stratis pool";
        Oracleasm => "oracleasm", "the header of an Oracle ASM disk";
        Swap => "swap", "swap space";
        Iso9660 => "iso9660", "an ISO 9660 image";
        Udf => "udf", "a UDF file system";
        Vfat => "vfat", "a FAT file system";
        Exfat => "exfat", "an exFAT file system";
        Ntfs => "ntfs", "an NTFS file system";
        Refs => "refs", "a ReFS file system";
        F2fs => "f2fs", "an F2FS file system";
        Bcachefs => "bcachefs", "a bcachefs file system";
        Erofs => "erofs", "an EROFS file system";
        Squashfs => "squashfs", "a squashfs file system";
        Cramfs => "cramfs", "a cramfs file system";
        Romfs => "romfs", "a romfs file system";
        Reiserfs => "reiserfs", "a ReiserFS file system";
        Jfs => "jfs", "a JFS file system";
        Nilfs2 => "nilfs2", "a NILFS2 file system";
        Hfsplus => "hfsplus", "an HFS+ file system";
        Apfs => "apfs", "an APFS container";
        Gfs2 => "gfs2", "a GFS2 file system";
        Ocfs2 => "ocfs2", "an OCFS2 file system";
    }
}

closed_enum! {
    /// The state of the content, as far as a limited read can tell.
    ContentState mirrors ContentState, "state" {
        /// Nothing in its first blocks contradicts the signature.
        Sound => "sound",
        /// The signature is present, but the data around it is invalid, or a checker found errors.
        Damaged => "damaged",
        /// The tool that made the content never finished.
        Unfinished => "unfinished",
        /// The content claims to be larger than the disk.
        CutOff => "cut-off",
    }
}

impl From<FsType> for Signature {
    fn from(fs: FsType) -> Self {
        match fs {
            FsType::Ext3 => Self::Ext3,
            FsType::Ext4 => Self::Ext4,
            FsType::Xfs => Self::Xfs,
        }
    }
}
