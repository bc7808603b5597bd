//! Why the helper refuses a request.

use crate::closed::described_enum;

described_enum! {
    /// The policy or the facts forbid a request; a repeated request gets the same answer until
    /// something changes.
    Refusal mirrors Refusal, "reason";
    /// Explains the reason and what to do about it, for the reader of a status or an event.
    explain {
        PathOutside => "path-outside",
            "the path is not beneath the kubelet directories that the policy allows for this operation; check --kubelet-root and the CO's paths";
        PathNotPlain => "path-not-plain",
            "a component of the path is missing, a symbolic link, or not a directory; symbolic links are never followed, name the real path";
        MountFlag => "mount-flag",
            "a mount flag is not allowed here, or the node's kernel does not accept it; remove it from the StorageClass or PersistentVolume (policy/mounts.toml lists what is allowed)";
        FsType => "fs-type", "the file system is not allowed; use ext3, ext4 or xfs";
        FormatOption => "format-option",
            "a format option does not fit the file system; correct the StorageClass";
        DeviceNotFound => "device-not-found",
            "no disk of the volume appeared; check that the volume is attached to this instance, then retry";
        DeviceAmbiguous => "device-ambiguous",
            "two disks may be the volume's; nothing is touched until one is gone";
        DeviceMismatch => "device-mismatch",
            "the disk is not the volume, or changed while it was looked at; check the attachment, then retry";
        DeviceTooSmall => "device-too-small",
            "the disk is smaller than the volume was when it was attached, or than the file system on it; nothing is done to it, check the attachment";
        PartitionTable => "partition-table",
            "the disk holds a partition table; name a partition in the volume attributes, or use another volume";
        ForeignContent => "foreign-content",
            "the disk holds something else than the file system asked for; name the file system that is there, or use another volume";
        UnknownContent => "unknown-content",
            "the disk is neither blank nor a known file system, so it is not formatted; erase it by hand if its content is not wanted";
        CopyWithoutFilesystem => "copy-without-filesystem",
            "the volume comes from a snapshot or a clone and holds no file system; a copy is never formatted, check its source";
        ReadOnlyBlank => "read-only-blank",
            "the disk is blank and the request is read-only; stage it writable once so that it is formatted";
        FilesystemErrors => "filesystem-errors",
            "the file system has errors that are not repaired without a person; while the volume is attached and not mounted, `e2fsck -f -n` (ext) or `xfs_repair -n` (XFS) on its disk shows them and changes nothing; repair it by hand or restore a snapshot";
        MountedDifferently => "mounted-differently",
            "something else is mounted at the path, or the volume is mounted there in another way; unpublish it first";
        StagedElsewhere => "staged-elsewhere",
            "the volume is staged at another path; unstage it there first";
        NotStaged => "not-staged", "the staging path is not a mount of the volume; stage it first";
        TargetOccupied => "target-occupied",
            "the target path holds a file, or a directory that is not empty; nothing is removed, look at what is there";
        StillHeld => "still-held",
            "the disk is still mounted or open elsewhere on the node; end what holds it, then retry";
        SizeOutOfRange => "size-out-of-range",
            "the disk is smaller than the size required, or larger than the limit; wait for the volume's modification, then retry";
        VolumeNotAtPath => "volume-not-at-path", "the volume is not mounted at the path";
        Unsupported => "unsupported", "this device does not offer what was asked";
        Busy => "busy", "another operation on the volume is running, or too many wait; retry";
        Version => "version",
            "node-agent and mount-helper do not speak a common protocol version; bring both to neighbouring releases";
        UntrustedImage => "untrusted-image",
            "the volume comes from elsewhere, and such file systems are refused here, or a mount flag (noload, norecovery) forbids the replay without which this one cannot be checked; see the mount-helper's --untrusted-images";
        DeviceWithoutSerial => "device-without-serial",
            "the disk has no serial, as on every instance type that is built on Xen, and nothing else proves that it is the volume: the mount-helper was told to refuse such disks (--disks-without-serial), or does not remember any more what this one was taken for; staging or publishing the volume again, as a new pod or a restart of kubelet does, tells it, and on instance types that are built on the Nitro System every disk says itself whose it is";
        SuperblockAsks => "superblock-asks",
            "the file system's superblock asks the kernel for a journal on another disk, or for default mount options that are not allowed; `dumpe2fs -h` on its disk shows both; `tune2fs -O ^has_journal` and then `tune2fs -j` move the journal, `tune2fs -E mount_opts=` and `tune2fs -o ^option` remove the options";
        DeviceReadOnly => "device-read-only",
            "somebody made the disk read-only on this node (`blockdev --setro`), and it was not this driver, which therefore does not write to it, not even to replay a journal, without which a read-only mount would show old data; `blockdev --setrw` on it allows that again";
        TooManyPublications => "too-many-publications",
            "the volume is published at as many targets of this node as one volume may be; unpublish it where it is not used any more";
        OriginUntold => "origin-untold",
            "the disk reads as blank in the places that are looked at, but the controller did not say that the volume was made blank, so it is not formatted; detach the volume and let this driver's controller attach it again, which says so, or make the file system by hand";
        UsedRaw => "used-raw",
            "the disk reads as blank in the places that are looked at, but it was published as a raw device since it was attached, so it is not formatted; if nothing on it is wanted, detach the volume and attach it again, or make the file system by hand";
        KernelLacksFeature => "kernel-lacks-feature",
            "the node's kernel does not mount such a file system, which is not damaged; use nodes with a newer kernel (`dmesg` on the node has the kernel's own words), or for a new volume correct the StorageClass";
        NewerThanChecker => "newer-than-checker",
            "the file system has to be checked before it is mounted and was made by newer tools than the checker in the mount-helper's image, so nothing is known about its state; use an image with newer e2fsprogs or xfsprogs, or check it by newer tools on another machine";
        Promised => "promised",
            "the volume is on its way off this node, which has promised not to use it before; it is attached anew after its detach, and can be used a minute after the detach is given up (no VolumeAttachment of it is being deleted any more)";
    }
}

impl std::error::Error for Refusal {}
