//! Keys and values of the publish context, which the controller writes for the node-agent.

/// The device name that EC2 was given; on Nitro only a hint. The Go driver has this key, too.
pub const DEVICE_PATH: &str = "devicePath";
/// The EBS volume that a node-local handle stands for; set only for such a handle. The Go driver
/// has this key, too.
pub const VOLUME_ID: &str = "volumeID";
/// The volume's size in bytes when it was attached; a smaller device is another disk.
pub const SIZE_BYTES: &str = "ebs.csi.aws.com/size-bytes";
/// Where the volume's first content came from: one of the values below.
pub const ORIGIN: &str = "ebs.csi.aws.com/origin";
/// When the attach was accepted, RFC 3339.
pub const ATTACHED_AT: &str = "ebs.csi.aws.com/attached-at";

/// Value of [`ORIGIN`]: EC2 made the volume blank.
pub const BLANK: &str = "blank";
/// Value of [`ORIGIN`]: a copy of a snapshot that this driver made in this cluster. A copy holds
/// data and is never formatted.
pub const OWN_SNAPSHOT: &str = "own-snapshot";
/// Value of [`ORIGIN`]: a copy of another snapshot.
pub const SNAPSHOT: &str = "snapshot";
/// Value of [`ORIGIN`]: a copy of a snapshot that EC2 does not show any more.
pub const UNSEEN_SNAPSHOT: &str = "unseen-snapshot";
/// Value of [`ORIGIN`]: a copy of a volume that this driver made in this cluster.
pub const OWN_VOLUME: &str = "own-volume";
/// Value of [`ORIGIN`]: a copy of another volume.
pub const VOLUME: &str = "volume";
/// Value of [`ORIGIN`]: a copy of a volume that EC2 does not show any more.
pub const UNSEEN_VOLUME: &str = "unseen-volume";
