//! The instance types that the simulator knows: attachment limits and how volumes appear.

/// The attributes of an instance type that matter to volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceType {
    /// The name.
    pub name: &'static str,
    /// `nitro` or `xen`.
    pub hypervisor: &'static str,
    /// Whether the type is bare metal.
    pub bare_metal: bool,
    /// The maximum number of volumes, including the root volume.
    pub maximum_attachments: u32,
    /// Whether network interfaces count against the attachments.
    pub shared: bool,
    /// The number of EBS cards.
    pub cards: u32,
    /// The number of virtual CPUs.
    pub vcpus: u32,
    /// The memory, in MiB.
    pub memory_mib: u32,
    /// `x86_64` or `arm64`.
    pub architecture: &'static str,
    /// The number of NVMe instance store disks; `maximum_attachments` already leaves them out.
    pub store_disks: u32,
}

const fn nitro(
    name: &'static str,
    maximum: u32,
    shared: bool,
    vcpus: u32,
    memory_gib: u32,
) -> InstanceType {
    InstanceType {
        name,
        hypervisor: "nitro",
        bare_metal: false,
        maximum_attachments: maximum,
        shared,
        cards: 1,
        vcpus,
        memory_mib: memory_gib * 1024,
        architecture: "x86_64",
        store_disks: 0,
    }
}

/// The types with their published limits.
pub(crate) const TYPES: &[InstanceType] = &[
    nitro("t3.micro", 27, true, 2, 1),
    nitro("t3.medium", 27, true, 2, 4),
    nitro("m5.large", 27, true, 2, 8),
    nitro("m5.xlarge", 27, true, 4, 16),
    InstanceType {
        store_disks: 1,
        ..nitro("m5d.xlarge", 26, true, 4, 16)
    },
    nitro("c5.large", 27, true, 2, 4),
    nitro("m6i.large", 27, true, 2, 8),
    InstanceType {
        architecture: "arm64",
        ..nitro("m7g.large", 27, true, 2, 8)
    },
    nitro("m7i.large", 32, false, 2, 8),
    nitro("m7i.16xlarge", 48, false, 64, 256),
    nitro("m7i.24xlarge", 64, false, 96, 384),
    nitro("m7i.48xlarge", 128, false, 192, 768),
    InstanceType {
        bare_metal: true,
        hypervisor: "",
        ..nitro("m7i.metal-24xl", 39, false, 96, 384)
    },
    InstanceType {
        bare_metal: true,
        hypervisor: "",
        ..nitro("m5.metal", 31, true, 96, 384)
    },
    InstanceType {
        cards: 2,
        architecture: "arm64",
        ..nitro("r8gb.48xlarge", 128, false, 192, 1536)
    },
    InstanceType {
        store_disks: 24,
        ..nitro("d3.8xlarge", 3, true, 32, 256)
    },
    InstanceType {
        hypervisor: "xen",
        ..nitro("m4.large", 40, true, 2, 8)
    },
    InstanceType {
        hypervisor: "xen",
        ..nitro("t2.micro", 40, true, 1, 1)
    },
];

/// Returns the type of this name.
pub(crate) fn find(name: &str) -> Option<&'static InstanceType> {
    TYPES.iter().find(|t| t.name == name)
}

/// Returns the maximum number of volumes on an instance of this type with `enis` network
/// interfaces, including the root volume. An unknown type has 27, shared with network interfaces.
pub(crate) fn attachment_limit(name: &str, enis: u32) -> u32 {
    let (maximum, shared) = find(name).map_or((27, true), |t| (t.maximum_attachments, t.shared));
    if shared {
        maximum.saturating_sub(enis.saturating_sub(1))
    } else {
        maximum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_interfaces_reduce_limit_only_on_shared_types() {
        for (name, enis, limit) in [
            ("m5.large", 1, 27),
            ("m5.large", 3, 25),
            ("m7i.large", 3, 32),
            ("r8gb.48xlarge", 1, 128),
            ("d3.8xlarge", 9, 0),
            ("x9.unheard", 1, 27),
        ] {
            assert_eq!(attachment_limit(name, enis), limit, "{name}");
        }
    }

    #[test]
    fn no_type_is_listed_twice() {
        let names: std::collections::BTreeSet<_> = TYPES.iter().map(|t| t.name).collect();
        assert_eq!(names.len(), TYPES.len());
    }
}
