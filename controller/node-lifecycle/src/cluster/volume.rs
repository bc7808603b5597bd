//! PersistentVolumes, and what a claim is bound to.
//!
//! A bound volume names its claim, so claims themselves are not watched.

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_safe_detach::lifecycle::Claim;
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::object_table::{Table, TableRow, Texts};
use super::{Object, Retained};

const NAME: usize = 0;
const CLAIM: usize = 1;
const HANDLE: usize = 2;

/// A PersistentVolume, with its name and the claim (`NAMESPACE/NAME`) that it is bound to as keys.
#[derive(Clone, Debug)]
pub(crate) struct VolumeRow {
    texts: Texts<3>,
    is_own: bool,
    is_shared: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    claim_ref: Option<core::ObjectReference>,
    csi: Option<Csi>,
    access_modes: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Csi {
    driver: String,
    volume_handle: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    phase: Option<String>,
}

impl TableRow for VolumeRow {
    fn key(&self) -> &str {
        self.texts.get(NAME)
    }

    fn second_key(&self) -> Option<&str> {
        Some(self.texts.get(CLAIM)).filter(|claim| !claim.is_empty())
    }
}

impl Retained for VolumeRow {
    type Kind = core::PersistentVolume;
    type Spec = Spec;
    type Status = Status;

    fn new(object: Object<Spec, Status>) -> Option<Self> {
        let spec = object.spec;
        let bound = object.status.phase.as_deref() == Some("Bound");
        let claim = spec.claim_ref.filter(|_| bound);
        let claim = claim.and_then(|claim| Some(format!("{}/{}", claim.namespace?, claim.name?)));
        let csi = spec.csi.filter(|csi| csi.driver == DRIVER_NAME);
        let is_shared = |mode: &String| matches!(mode.as_str(), "ReadWriteMany" | "ReadOnlyMany");
        Some(Self {
            is_own: csi.is_some(),
            is_shared: spec.access_modes.iter().any(is_shared),
            texts: Texts::new([
                &object.metadata.name,
                claim.as_deref().unwrap_or_default(),
                csi.as_ref().map_or("", |csi| &csi.volume_handle),
            ]),
        })
    }
}

impl VolumeRow {
    /// Returns the driver's volume; `None` for another driver's.
    pub(crate) fn volume(&self) -> Option<&str> {
        self.is_own.then(|| self.texts.get(HANDLE))
    }
}

pub(crate) fn claim_of(volumes: &Table<VolumeRow>, namespace: &str, name: &str) -> Claim {
    match volumes.get_by_second_key(&format!("{namespace}/{name}")) {
        None => Claim::Unknown,
        Some(bound) => match bound.volume() {
            Some(volume) => Claim::Ours { volume: volume.to_owned(), shared: bound.is_shared },
            None => Claim::Foreign,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::object::retained;

    fn row(change: impl FnOnce(&mut Value)) -> VolumeRow {
        let mut object = json!({
            "metadata": {"name": "pv"},
            "spec": {"claimRef": {"namespace": "a", "name": "c"}, "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": DRIVER_NAME, "volumeHandle": "vol-1"}},
            "status": {"phase": "Bound"},
        });
        change(&mut object);
        retained(object).expect("retained")
    }

    /// Another driver's volume, or one without CSI, has no handle; ReadWriteMany makes a volume
    /// shared.
    #[test]
    fn bound_volume_names_claim_released_volume_does_not() {
        let whole = row(|_| ());
        assert_eq!(
            (whole.key(), whole.second_key(), whole.volume(), whole.is_shared),
            ("pv", Some("a/c"), Some("vol-1"), false)
        );
        let released = row(|v| v["status"]["phase"] = json!("Released"));
        assert_eq!(released.second_key(), None);
        let foreign = row(|v| v["spec"]["csi"]["driver"] = json!("other.example.com"));
        assert_eq!(foreign.volume(), None);
        let local = row(|v| v["spec"]["csi"] = Value::Null);
        assert_eq!(local.volume(), None);
        assert!(row(|v| v["spec"]["accessModes"] = json!(["ReadWriteMany"])).is_shared);
    }
}
