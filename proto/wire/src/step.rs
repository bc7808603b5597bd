//! What the helper was doing when something did not work.

use crate::closed::closed_enum;

closed_enum! {
    /// The step of an operation that failed.
    Step mirrors Step, "step" {
        /// Looking for the volume's disk.
        FindDevice => "find-device",
        /// Reading the disk.
        ReadDevice => "read-device",
        /// Opening the disk for this operation alone.
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
        /// Writing back what the kernel still holds.
        Sync => "sync",
        /// Growing the file system.
        Grow => "grow",
        /// Reading the mount table.
        ReadMountTable => "read-mount-table",
        /// Asking a file system for its numbers.
        Stat => "stat",
        /// The tool passed its deadline and was ended.
        ToolDeadline => "tool-deadline",
        /// The process that runs tools could not be had.
        Runner => "runner",
        /// Reading the NVMe log page.
        LogPage => "log-page",
        /// Walking to a path.
        ResolvePath => "resolve-path",
    }
}
