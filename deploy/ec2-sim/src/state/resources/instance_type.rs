//! The instance types that the simulator knows: attachment limits and how volumes appear.

/// The attributes of an instance type that matter to volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceType {
    pub name: &'static str,
    /// `nitro` or `xen`; empty for bare metal.
    pub hypervisor: &'static str,
    /// The maximum number of volumes, including the root volume.
    pub maximum_attachments: u32,
    pub cards: u32,
    /// `x86_64` or `arm64`.
    pub architecture: &'static str,
}

const fn nitro(name: &'static str, maximum_attachments: u32) -> InstanceType {
    InstanceType {
        name,
        hypervisor: "nitro",
        maximum_attachments,
        cards: 1,
        architecture: "x86_64",
    }
}

const fn metal(name: &'static str, maximum_attachments: u32) -> InstanceType {
    InstanceType { hypervisor: "", ..nitro(name, maximum_attachments) }
}

const fn xen(name: &'static str) -> InstanceType {
    InstanceType { hypervisor: "xen", ..nitro(name, 40) }
}

/// The types with their published limits, on an instance with one network interface and without
/// the disks of an instance store.
pub(crate) const TYPES: &[InstanceType] = &[
    nitro("t3.micro", 27),
    nitro("t3.medium", 27),
    nitro("m5.large", 27),
    nitro("m5.xlarge", 27),
    nitro("m5d.xlarge", 26),
    nitro("c5.large", 27),
    nitro("m6i.large", 27),
    InstanceType { architecture: "arm64", ..nitro("m7g.large", 27) },
    nitro("m7i.large", 32),
    nitro("m7i.16xlarge", 48),
    nitro("m7i.24xlarge", 64),
    nitro("m7i.48xlarge", 128),
    metal("m7i.metal-24xl", 39),
    metal("m5.metal", 31),
    InstanceType { cards: 2, architecture: "arm64", ..nitro("r8gb.48xlarge", 128) },
    nitro("d3.8xlarge", 3),
    xen("m4.large"),
    xen("t2.micro"),
];

pub(crate) fn find(name: &str) -> Option<&'static InstanceType> {
    TYPES.iter().find(|t| t.name == name)
}

/// Returns the maximum number of volumes on an instance of this type, including the root volume; 27
/// for an unknown type.
pub(crate) fn attachment_limit(name: &str) -> u32 {
    find(name).map_or(27, |t| t.maximum_attachments)
}
