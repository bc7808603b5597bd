//! The instance types that the simulator knows: attachment limits and how volumes appear.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceType {
    pub name: &'static str,
    /// The maximum number of volumes, including the root volume.
    pub(crate) maximum_attachments: u32,
    /// `shared` if network interfaces take from the same number, else `dedicated`.
    pub(crate) limit_type: &'static str,
    pub(crate) cards: u32,
}

const fn shared(name: &'static str, maximum_attachments: u32) -> InstanceType {
    InstanceType { name, maximum_attachments, limit_type: "shared", cards: 1 }
}

const fn dedicated(name: &'static str, maximum_attachments: u32) -> InstanceType {
    InstanceType { limit_type: "dedicated", ..shared(name, maximum_attachments) }
}

/// The types with their published limits, on an instance with one network interface and without
/// the disks of an instance store.
pub(crate) const TYPES: &[InstanceType] = &[
    shared("m5.large", 27),
    shared("c5.large", 27),
    dedicated("m7i.large", 32),
    dedicated("m7i.24xlarge", 64),
    dedicated("m7i.48xlarge", 128),
    InstanceType { cards: 2, ..dedicated("r8gb.48xlarge", 128) },
];

pub(crate) fn find(name: &str) -> Option<&'static InstanceType> {
    TYPES.iter().find(|t| t.name == name)
}

/// Returns the maximum number of volumes on an instance of this type, including the root volume; 27
/// for an unknown type.
pub(crate) fn attachment_limit(name: &str) -> u32 {
    find(name).map_or(27, |t| t.maximum_attachments)
}
