//! The step of the helper that failed.

use crate::closed::closed_enum;

closed_enum! {
    /// The step of an operation that failed.
    Step mirrors Step, "step" {
        /// Looking for the volume's disk.
        FindDevice => "find-device",
        /// Reading the disk.
        ReadDevice => "read-device",
        /// Opening the disk exclusively for this operation.
        ClaimDevice => "claim-device",
        /// Making the file system.
        Format => "format",
        /// Checking the file system.
        Check => "check",
        /// Making the detached mount (fsopen, fsconfig, fsmount, open_tree).
        CreateMount => "create-mount",
        /// Attaching the mount (move_mount, mount_setattr).
        AttachMount => "attach-mount",
        /// Making the target directory or file.
        MakeTarget => "make-target",
        /// Removing the target directory or file.
        RemoveTarget => "remove-target",
        /// umount2.
        Unmount => "unmount",
        /// Writing back the kernel's cached data.
        Sync => "sync",
        /// Growing the file system.
        Grow => "grow",
        /// Reading the mount table.
        ReadMountTable => "read-mount-table",
        /// Reading the statistics of a file system.
        Stat => "stat",
        /// The tool exceeded its deadline and was ended.
        ToolDeadline => "tool-deadline",
        /// The runner process was not available.
        Runner => "runner",
        /// Reading the NVMe log page.
        LogPage => "log-page",
        /// Resolving a path.
        ResolvePath => "resolve-path",
    }
}
