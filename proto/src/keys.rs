//! Keys under which one process writes what another reads.

use ebs_csi_wire::listed_enum;

mod attach_limit;

pub use attach_limit::{ATTACH_LIMIT, AttachLimit};

/// Keys and values of the publish context, which the controller writes for the node-agent.
pub mod publish_context {
    /// The device name that EC2 was given; on Nitro only a hint. The Go driver has this key, too.
    pub const DEVICE_PATH: &str = "devicePath";
    /// The EBS volume that a node-local handle stands for; set only for such a handle. The Go
    /// driver has this key, too.
    pub const VOLUME_ID: &str = "volumeID";
    /// The volume's size in bytes when it was attached; a smaller device is another disk.
    pub const SIZE_BYTES: &str = "ebs.csi.aws.com/size-bytes";
    /// Where the volume's first content came from: one of the values below.
    pub const ORIGIN: &str = "ebs.csi.aws.com/origin";
    /// When the attach was accepted, RFC 3339.
    pub const ATTACHED_AT: &str = "ebs.csi.aws.com/attached-at";

    /// Value of [`ORIGIN`]: EC2 made the volume blank.
    pub const BLANK: &str = "blank";
    /// Value of [`ORIGIN`]: a copy of a snapshot that this driver made in this cluster. A copy
    /// holds data and is never formatted.
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
}

/// Keys of a node's place, as labels of its Node and as topology segments of CSI.
pub mod topology {
    /// Kubernetes' own key of the zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// The driver's former key of the zone; still sent and accepted, because existing volumes have
    /// it.
    pub const DRIVER_ZONE: &str = "topology.ebs.csi.aws.com/zone";
    /// Partition (`aws`, `aws-cn`, …) of an Outpost.
    pub const OUTPOST_PARTITION: &str = "topology.ebs.csi.aws.com/partition";
    /// Region of an Outpost.
    pub const OUTPOST_REGION: &str = "topology.ebs.csi.aws.com/region";
    /// Account of an Outpost.
    pub const OUTPOST_ACCOUNT: &str = "topology.ebs.csi.aws.com/account-id";
    /// The Outpost.
    pub const OUTPOST_ID: &str = "topology.ebs.csi.aws.com/outpost-id";
}

/// Annotation of a node-agent's pod: `true` while the node is being drained. node-lifecycle writes
/// it.
pub const DRAINING: &str = "ebs.csi.aws.com/draining";
/// Annotation of a node-agent's pod: the attachments that the node is to leave alone, as
/// `VOLUME@TIME`, separated by commas. node-lifecycle writes it.
pub const LEAVING: &str = "ebs.csi.aws.com/leaving";
/// Label of a node-agent's pod whose agent answers who holds a volume: the port of its page.
pub const HELD_PORT: &str = "ebs.csi.aws.com/held-port";
/// Annotation of a node-agent's pod: number of attached network interfaces. A person writes it.
pub const NETWORK_INTERFACES: &str = "ebs.csi.aws.com/enis-count";
/// Annotation of a node-agent's pod: number of EBS volumes that the driver did not attach, without
/// the root volume. A person writes it.
pub const OTHER_VOLUMES: &str = "ebs.csi.aws.com/non-csi-ebs-volumes-count";

listed_enum! {
    /// A fact about a node that the node-agent reads from its pod: from the annotation, which
    /// node-lifecycle writes, or from the label, which Kubernetes may copy from the Node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NodeFact with fn annotation_and_label -> (&'static str, Option<&'static str>) {
        /// The availability zone.
        Zone = ("ebs.csi.aws.com/zone", Some(topology::ZONE)),
        /// The region.
        Region = ("ebs.csi.aws.com/region", Some("topology.kubernetes.io/region")),
        /// The EC2 instance.
        Instance = ("ebs.csi.aws.com/instance-id", None),
        /// The instance type.
        InstanceType = (
            "ebs.csi.aws.com/instance-type",
            Some("node.kubernetes.io/instance-type"),
        ),
        /// The partition of an Outpost.
        OutpostPartition = same_label_and_annotation(topology::OUTPOST_PARTITION),
        /// The region of an Outpost.
        OutpostRegion = same_label_and_annotation(topology::OUTPOST_REGION),
        /// The account of an Outpost.
        OutpostAccount = same_label_and_annotation(topology::OUTPOST_ACCOUNT),
        /// The Outpost.
        Outpost = same_label_and_annotation(topology::OUTPOST_ID),
    }
}

const fn same_label_and_annotation(key: &'static str) -> (&'static str, Option<&'static str>) {
    (key, Some(key))
}

impl NodeFact {
    /// Returns the key of the annotation.
    pub const fn annotation(self) -> &'static str {
        self.annotation_and_label().0
    }

    /// Returns the key of the label; `None` where there is none.
    pub const fn label(self) -> Option<&'static str> {
        self.annotation_and_label().1
    }
}
