//! The helper's names for the content of a disk.

use crate::FsType;
use crate::closed::closed_enum;

closed_enum! {
    /// The signature on a disk.
    Signature mirrors Signature, "signature" {
        /// An ext2 file system.
        Ext2 => "ext2",
        /// An ext3 file system.
        Ext3 => "ext3",
        /// An ext4 file system.
        Ext4 => "ext4",
        /// An XFS file system.
        Xfs => "xfs",
        /// The superblocks of an ext and of an XFS file system.
        ExtAndXfs => "ext-and-xfs",
        /// The external journal of an ext file system.
        ExtJournal => "ext-journal",
        /// The external log of an XFS file system.
        XfsLog => "xfs-log",
        /// A btrfs file system.
        Btrfs => "btrfs",
        /// A ZFS pool.
        Zfs => "zfs",
        /// A GUID partition table (GPT).
        Gpt => "gpt",
        /// A DOS partition table (MBR).
        Mbr => "mbr",
        /// An Apple partition map.
        Apm => "apm",
        /// A BSD disk label.
        Bsd => "bsd",
        /// A Sun disk label.
        Sun => "sun",
        /// A LUKS header (an encrypted volume).
        Luks => "luks",
        /// A BitLocker header (an encrypted volume).
        Bitlocker => "bitlocker",
        /// The label of an LVM2 physical volume.
        Lvm2 => "lvm2",
        /// The superblock of a Linux software RAID (md).
        Md => "md",
        /// The anchor of a DDF RAID.
        Ddf => "ddf",
        /// The metadata of a DRBD device.
        Drbd => "drbd",
        /// The superblock of a bcache device.
        Bcache => "bcache",
        /// The geometry block of a VDO device.
        Vdo => "vdo",
        /// The header of a Stratis pool.
        Stratis => "stratis",
        /// The header of an Oracle ASM disk.
        Oracleasm => "oracleasm",
        /// Swap space.
        Swap => "swap",
        /// An ISO 9660 image.
        Iso9660 => "iso9660",
        /// A UDF file system.
        Udf => "udf",
        /// A FAT file system.
        Vfat => "vfat",
        /// An exFAT file system.
        Exfat => "exfat",
        /// An NTFS file system.
        Ntfs => "ntfs",
        /// A ReFS file system.
        Refs => "refs",
        /// An F2FS file system.
        F2fs => "f2fs",
        /// A bcachefs file system.
        Bcachefs => "bcachefs",
        /// An EROFS file system.
        Erofs => "erofs",
        /// A squashfs file system.
        Squashfs => "squashfs",
        /// A cramfs file system.
        Cramfs => "cramfs",
        /// A romfs file system.
        Romfs => "romfs",
        /// A ReiserFS file system.
        Reiserfs => "reiserfs",
        /// A JFS file system.
        Jfs => "jfs",
        /// A NILFS2 file system.
        Nilfs2 => "nilfs2",
        /// An HFS+ file system.
        Hfsplus => "hfsplus",
        /// An APFS container.
        Apfs => "apfs",
        /// A GFS2 file system.
        Gfs2 => "gfs2",
        /// An OCFS2 file system.
        Ocfs2 => "ocfs2",
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

impl Signature {
    /// Describes the content for a person.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Ext2 => "an ext2 file system",
            Self::Ext3 => "an ext3 file system",
            Self::Ext4 => "an ext4 file system",
            Self::Xfs => "an XFS file system",
            Self::ExtAndXfs => "the superblocks of an ext and of an XFS file system",
            Self::ExtJournal => "the external journal of an ext file system",
            Self::XfsLog => "the external log of an XFS file system",
            Self::Btrfs => "a btrfs file system",
            Self::Zfs => "a ZFS pool",
            Self::Gpt => "a GUID partition table (GPT)",
            Self::Mbr => "a DOS partition table (MBR)",
            Self::Apm => "an Apple partition map",
            Self::Bsd => "a BSD disk label",
            Self::Sun => "a Sun disk label",
            Self::Luks => "a LUKS header (an encrypted volume)",
            Self::Bitlocker => "a BitLocker header (an encrypted volume)",
            Self::Lvm2 => "the label of an LVM2 physical volume",
            Self::Md => "the superblock of a Linux software RAID (md)",
            Self::Ddf => "the anchor of a DDF RAID",
            Self::Drbd => "the metadata of a DRBD device",
            Self::Bcache => "the superblock of a bcache device",
            Self::Vdo => "the geometry block of a VDO device",
            Self::Stratis => "the header of a Stratis pool",
            Self::Oracleasm => "the header of an Oracle ASM disk",
            Self::Swap => "swap space",
            Self::Iso9660 => "an ISO 9660 image",
            Self::Udf => "a UDF file system",
            Self::Vfat => "a FAT file system",
            Self::Exfat => "an exFAT file system",
            Self::Ntfs => "an NTFS file system",
            Self::Refs => "a ReFS file system",
            Self::F2fs => "an F2FS file system",
            Self::Bcachefs => "a bcachefs file system",
            Self::Erofs => "an EROFS file system",
            Self::Squashfs => "a squashfs file system",
            Self::Cramfs => "a cramfs file system",
            Self::Romfs => "a romfs file system",
            Self::Reiserfs => "a ReiserFS file system",
            Self::Jfs => "a JFS file system",
            Self::Nilfs2 => "a NILFS2 file system",
            Self::Hfsplus => "an HFS+ file system",
            Self::Apfs => "an APFS container",
            Self::Gfs2 => "a GFS2 file system",
            Self::Ocfs2 => "an OCFS2 file system",
        }
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
