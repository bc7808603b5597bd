//! What a volume or snapshot is made for, from the sidecars' `--extra-create-metadata`: the fields
//! of tag templates.

use ebs_csi_template::Fields;

use crate::row::{Form, Given, Row};

/// The claim that a volume is created for. Its fields are empty without that flag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The name of the PersistentVolumeClaim.
    pub name: String,
    /// The namespace of the PersistentVolumeClaim.
    pub namespace: String,
    /// The name of the PersistentVolume.
    pub volume: String,
}

impl Claim {
    pub(crate) const ROWS: [Row; 3] = [
        set_by_sidecar(
            "csi.storage.k8s.io/pvc/name",
            "`.PVCName`, tag `kubernetes.io/created-for/pvc/name`",
        ),
        set_by_sidecar(
            "csi.storage.k8s.io/pvc/namespace",
            "`.PVCNamespace`, tag `kubernetes.io/created-for/pvc/namespace`",
        ),
        set_by_sidecar(
            "csi.storage.k8s.io/pv/name",
            "`.PVName`, tag `kubernetes.io/created-for/pv/name`",
        ),
    ];

    /// Stores the value of one of the rows.
    pub(crate) fn store(&mut self, given: &Given<'_>) {
        let slots = [&mut self.name, &mut self.namespace, &mut self.volume];
        store(&Self::ROWS, slots, given);
    }

    /// Fills the empty fields from `other`.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        for (mine, theirs) in [
            (&mut self.name, &other.name),
            (&mut self.namespace, &other.namespace),
            (&mut self.volume, &other.volume),
        ] {
            if mine.is_empty() {
                theirs.clone_into(mine);
            }
        }
        self
    }
}

impl Fields for Claim {
    fn field(&self, name: &str) -> Option<&str> {
        match name {
            "PVCName" => Some(&self.name),
            "PVCNamespace" => Some(&self.namespace),
            "PVName" => Some(&self.volume),
            _ => None,
        }
    }

    fn names(&self) -> &'static str {
        ".PVCName, .PVCNamespace and .PVName"
    }
}

/// The VolumeSnapshot that a snapshot is taken for, or the VolumeGroupSnapshot that several are
/// taken for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotClaim {
    /// The name of the VolumeSnapshot or VolumeGroupSnapshot.
    pub name: String,
    /// The namespace of that object.
    pub namespace: String,
    /// The name of its VolumeSnapshotContent or VolumeGroupSnapshotContent.
    pub content: String,
}

impl SnapshotClaim {
    pub(crate) const ROWS: [Row; 6] = [
        set_by_sidecar("csi.storage.k8s.io/volumesnapshot/name", "`.VolumeSnapshotName`"),
        set_by_sidecar("csi.storage.k8s.io/volumesnapshot/namespace", "`.VolumeSnapshotNamespace`"),
        set_by_sidecar(
            "csi.storage.k8s.io/volumesnapshotcontent/name",
            "`.VolumeSnapshotContentName`",
        ),
        set_by_sidecar("csi.storage.k8s.io/volumegroupsnapshot/name", "`.VolumeSnapshotName`"),
        set_by_sidecar(
            "csi.storage.k8s.io/volumegroupsnapshot/namespace",
            "`.VolumeSnapshotNamespace`",
        ),
        set_by_sidecar(
            "csi.storage.k8s.io/volumegroupsnapshotcontent/name",
            "`.VolumeSnapshotContentName`",
        ),
    ];

    /// Stores the value of one of the rows.
    pub(crate) fn store(&mut self, given: &Given<'_>) {
        let slots = [&mut self.name, &mut self.namespace, &mut self.content];
        store(&Self::ROWS, slots, given);
    }
}

impl Fields for SnapshotClaim {
    fn field(&self, name: &str) -> Option<&str> {
        match name {
            "VolumeSnapshotName" => Some(&self.name),
            "VolumeSnapshotNamespace" => Some(&self.namespace),
            "VolumeSnapshotContentName" => Some(&self.content),
            _ => None,
        }
    }

    fn names(&self) -> &'static str {
        ".VolumeSnapshotName, .VolumeSnapshotNamespace and .VolumeSnapshotContentName"
    }
}

const fn set_by_sidecar(key: &'static str, meaning: &'static str) -> Row {
    Row { key, form: Form::SetBySidecar, example: "data", meaning, ..Row::NONE }
}

/// Each three rows are of the same three slots.
fn store(rows: &[Row], slots: [&mut String; 3], given: &Given<'_>) {
    if let Some(position) = rows.iter().position(|known| known.key == given.row.key) {
        given.value.clone_into(slots[position % slots.len()]);
    }
}
