//! The kinds of objects that the server knows, with their names.

/// A kind of object, by its plural name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// `v1` Nodes.
    Nodes,
    /// `v1` Pods.
    Pods,
    /// `v1` PersistentVolumes.
    PersistentVolumes,
    /// `storage.k8s.io/v1` VolumeAttachments.
    VolumeAttachments,
    /// `storage.k8s.io/v1` CSIDrivers.
    CsiDrivers,
    /// `storage.k8s.io/v1` CSINodes.
    CsiNodes,
    /// `coordination.k8s.io/v1` Leases.
    Leases,
    /// `v1` ConfigMaps.
    ConfigMaps,
    /// `events.k8s.io/v1` Events.
    Events,
}

impl Kind {
    const ALL: [(Self, &'static str, &'static str, &'static str); 9] = [
        (Self::Nodes, "nodes", "v1", "Node"),
        (Self::Pods, "pods", "v1", "Pod"),
        (Self::PersistentVolumes, "persistentvolumes", "v1", "PersistentVolume"),
        (Self::VolumeAttachments, "volumeattachments", "storage.k8s.io/v1", "VolumeAttachment"),
        (Self::CsiDrivers, "csidrivers", "storage.k8s.io/v1", "CSIDriver"),
        (Self::CsiNodes, "csinodes", "storage.k8s.io/v1", "CSINode"),
        (Self::Leases, "leases", "coordination.k8s.io/v1", "Lease"),
        (Self::ConfigMaps, "configmaps", "v1", "ConfigMap"),
        (Self::Events, "events", "events.k8s.io/v1", "Event"),
    ];

    /// Returns the kind of this plural name in a path.
    pub(crate) fn of(plural: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, name, ..)| *name == plural).map(|(kind, ..)| kind)
    }

    /// Returns the kind's plural name in a path.
    pub(crate) fn plural(self) -> &'static str {
        self.row().1
    }

    /// Returns `apiVersion` and `kind`.
    pub(super) fn types(self) -> (&'static str, &'static str) {
        let (_, _, version, name) = self.row();
        (version, name)
    }

    fn row(self) -> (Self, &'static str, &'static str, &'static str) {
        let mut all = Self::ALL.into_iter();
        all.find(|(kind, ..)| *kind == self).unwrap_or(Self::ALL[0])
    }
}
