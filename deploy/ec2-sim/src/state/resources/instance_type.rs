//! The instance types that the simulator knows: attachment limits and how volumes appear.

/// The attributes of an instance type that matter to volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceType {
    pub name: &'static str,
    /// The maximum number of volumes, including the root volume.
    pub maximum_attachments: u32,
    pub cards: u32,
}

const fn kind(name: &'static str, maximum_attachments: u32) -> InstanceType {
    InstanceType { name, maximum_attachments, cards: 1 }
}

/// The types with their published limits, on an instance with one network interface and without
/// the disks of an instance store.
pub(crate) const TYPES: &[InstanceType] = &[
    kind("m5.large", 27),
    kind("c5.large", 27),
    kind("m7i.large", 32),
    kind("m7i.24xlarge", 64),
    kind("m7i.48xlarge", 128),
    InstanceType { cards: 2, ..kind("r8gb.48xlarge", 128) },
];

pub(crate) fn find(name: &str) -> Option<&'static InstanceType> {
    TYPES.iter().find(|t| t.name == name)
}

/// Returns the maximum number of volumes on an instance of this type, including the root volume; 27
/// for an unknown type.
pub(crate) fn attachment_limit(name: &str) -> u32 {
    find(name).map_or(27, |t| t.maximum_attachments)
}
