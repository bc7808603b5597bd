//! Why the helper refuses a request.

use crate::closed::closed_enum;

closed_enum! {
    /// The policy or the facts forbid a request; a repeated request gets the same answer until
    /// something changes.
    Refusal mirrors Refusal, "reason" {
        /// A path is not beneath the kubelet directories that the policy allows for this operation.
        PathOutside => "path-outside",
        /// A component of the path is missing, a symbolic link, or not a directory.
        PathNotPlain => "path-not-plain",
        /// The policy does not allow a mount flag for this file system and place.
        MountFlag => "mount-flag",
        /// The policy does not allow the file system.
        FsType => "fs-type",
        /// The file system does not have a format option, or cannot combine the given options.
        FormatOption => "format-option",
        /// No disk of the volume appeared in time.
        DeviceNotFound => "device-not-found",
        /// Two disks may be the volume's.
        DeviceAmbiguous => "device-ambiguous",
        /// The disk's serial, model, kind or disk sequence is not the expected one, or the known
        /// facts about the disk name another volume.
        DeviceMismatch => "device-mismatch",
        /// The disk is smaller than the volume was when it was attached, or than its file system.
        DeviceTooSmall => "device-too-small",
        /// The disk holds a partition table, and the request names the whole disk.
        PartitionTable => "partition-table",
        /// The disk has a signature of something other than the requested file system.
        ForeignContent => "foreign-content",
        /// The disk has bytes that are neither zero nor a known signature.
        UnknownContent => "unknown-content",
        /// The volume was made from a snapshot or a clone and has no file system; such a volume is
        /// never formatted.
        CopyWithoutFilesystem => "copy-without-filesystem",
        /// The disk would need a format, but the request is read-only.
        ReadOnlyBlank => "read-only-blank",
        /// The checker found errors that it may not repair by itself.
        FilesystemErrors => "filesystem-errors",
        /// Something else is mounted at the path, or the volume is mounted in another way.
        MountedDifferently => "mounted-differently",
        /// The volume is staged at another path.
        StagedElsewhere => "staged-elsewhere",
        /// The staging path is not the volume's verified mount.
        NotStaged => "not-staged",
        /// A directory that is not empty, or a file of another kind, is at the target.
        TargetOccupied => "target-occupied",
        /// Another holder (mount, opener, mapper) keeps the disk.
        StillHeld => "still-held",
        /// The device is smaller than the request requires, or larger than its limit.
        SizeOutOfRange => "size-out-of-range",
        /// Nothing is mounted at the path, or another volume is.
        VolumeNotAtPath => "volume-not-at-path",
        /// The device does not support the operation (no NVMe log page, or a raw block volume).
        Unsupported => "unsupported",
        /// Another operation on the volume runs, or too many operations wait; the caller may retry.
        Busy => "busy",
        /// The protocol versions do not overlap.
        Version => "version",
        /// The file system was not made by this driver, and it is refused or cannot be checked for
        /// the requested kind of mount.
        UntrustedImage => "untrusted-image",
        /// The disk has no serial (Xen), and no other accepted proof tells which volume it is.
        DeviceWithoutSerial => "device-without-serial",
        /// The superblock asks for a journal on another disk, or for default mount options that are
        /// not allowed.
        SuperblockAsks => "superblock-asks",
        /// Another program made the disk read-only.
        DeviceReadOnly => "device-read-only",
        /// The volume already has as many targets as one volume may have.
        TooManyPublications => "too-many-publications",
        /// The disk reads as blank, but its origin is untold.
        OriginUntold => "origin-untold",
        /// The disk reads as blank, and was published raw and writable since it was attached.
        UsedRaw => "used-raw",
    }
}

impl Refusal {
    /// Explains the reason and what to do about it, for the reader of a status or an event.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Self::PathOutside => {
                "the path is not beneath the kubelet directories that the policy allows for this operation; check --kubelet-root and the CO's paths"
            }
            Self::PathNotPlain => {
                "a component of the path is missing, a symbolic link, or not a directory; symbolic links are never followed, name the real path"
            }
            Self::MountFlag => {
                "a mount flag is not allowed here; remove it from the StorageClass or PersistentVolume (policy/mounts.toml lists what is allowed)"
            }
            Self::FsType => "the file system is not allowed; use ext3, ext4 or xfs",
            Self::FormatOption => {
                "a format option does not fit the file system; correct the StorageClass"
            }
            Self::DeviceNotFound => {
                "no disk of the volume appeared; check that the volume is attached to this instance, then retry"
            }
            Self::DeviceAmbiguous => {
                "two disks may be the volume's; nothing is touched until one is gone"
            }
            Self::DeviceMismatch => {
                "the disk is not the volume, or changed while it was looked at; check the attachment, then retry"
            }
            Self::DeviceTooSmall => {
                "the disk is smaller than the volume was when it was attached, or than the file system on it; nothing is done to it, check the attachment"
            }
            Self::PartitionTable => {
                "the disk holds a partition table; name a partition in the volume attributes, or use another volume"
            }
            Self::ForeignContent => {
                "the disk holds something else than the file system asked for; name the file system that is there, or use another volume"
            }
            Self::UnknownContent => {
                "the disk is neither blank nor a known file system, so it is not formatted; erase it by hand if its content is not wanted"
            }
            Self::CopyWithoutFilesystem => {
                "the volume comes from a snapshot or a clone and holds no file system; a copy is never formatted, check its source"
            }
            Self::ReadOnlyBlank => {
                "the disk is blank and the request is read-only; stage it writable once so that it is formatted"
            }
            Self::FilesystemErrors => {
                "the file system has errors that are not repaired without a person; while the volume is attached and not mounted, `e2fsck -f -n` (ext) or `xfs_repair -n` (XFS) on its disk shows them and changes nothing; repair it by hand or restore a snapshot"
            }
            Self::MountedDifferently => {
                "something else is mounted at the path, or the volume is mounted there in another way; unpublish it first"
            }
            Self::StagedElsewhere => "the volume is staged at another path; unstage it there first",
            Self::NotStaged => "the staging path is not a mount of the volume; stage it first",
            Self::TargetOccupied => {
                "the target path holds a file, or a directory that is not empty; nothing is removed, look at what is there"
            }
            Self::StillHeld => {
                "the disk is still mounted or open elsewhere on the node; end what holds it, then retry"
            }
            Self::SizeOutOfRange => {
                "the disk is smaller than the size required, or larger than the limit; wait for the volume's modification, then retry"
            }
            Self::VolumeNotAtPath => "the volume is not mounted at the path",
            Self::Unsupported => "this device does not offer what was asked",
            Self::Busy => "another operation on the volume is running, or too many wait; retry",
            Self::Version => {
                "node-agent and mount-helper do not speak a common protocol version; bring both to neighbouring releases"
            }
            Self::UntrustedImage => {
                "the volume comes from elsewhere, and such file systems are refused here, or this one cannot be checked without writing to it; stage it writable once, or see the mount-helper's --untrusted-images"
            }
            Self::TooManyPublications => {
                "the volume is published at as many targets of this node as one volume may be; unpublish it where it is not used any more"
            }
            Self::DeviceWithoutSerial => {
                "the disk has no serial, as on every instance type that is built on Xen, and nothing else proves that it is the volume: the mount-helper was told to refuse such disks (--disks-without-serial), or does not remember any more what this one was taken for; staging or publishing the volume again, as a new pod or a restart of kubelet does, tells it, and on instance types that are built on the Nitro System every disk says itself whose it is"
            }
            Self::DeviceReadOnly => {
                "somebody made the disk read-only on this node (`blockdev --setro`), and it was not this driver, which therefore does not write to it; `blockdev --setrw` on it allows that again"
            }
            Self::SuperblockAsks => {
                "the file system's superblock asks the kernel for a journal on another disk, or for default mount options that are not allowed; `dumpe2fs -h` on its disk shows both; `tune2fs -O ^has_journal` and then `tune2fs -j` move the journal, `tune2fs -E mount_opts=` and `tune2fs -o ^option` remove the options"
            }
            Self::OriginUntold => {
                "the disk reads as blank in the places that are looked at, but the controller did not say that the volume was made blank, so it is not formatted; detach the volume and let this driver's controller attach it again, which says so, or make the file system by hand"
            }
            Self::UsedRaw => {
                "the disk reads as blank in the places that are looked at, but it was published as a raw device since it was attached, so it is not formatted; if nothing on it is wanted, detach the volume and attach it again, or make the file system by hand"
            }
        }
    }
}

impl std::error::Error for Refusal {}
