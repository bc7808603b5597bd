//! PersistentVolumes, and what a claim is bound to.
//!
//! A bound volume names its claim, so claims themselves are not watched.

use std::collections::HashMap;
use std::sync::Arc;

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_safe_detach::lifecycle::Claim;
use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;

/// A PersistentVolume.
#[derive(Clone, Debug)]
pub struct SeenVolume {
    /// Its name.
    pub name: String,
    /// Namespace and name of the claim that it is bound to.
    pub claim: Option<(String, String)>,
    /// The driver's volume; `None` for another driver's.
    pub volume: Option<String>,
    /// Several nodes may use it at once.
    pub shared: bool,
}

impl SeenVolume {
    /// What matters of it.
    pub fn new(object: &core::PersistentVolume) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let bound = object.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        let claim = spec.claim_ref.as_ref().filter(|_| bound);
        let modes = spec.access_modes.iter().flatten();
        Some(Self {
            name: object.name_any(),
            claim: claim.and_then(|claim| Some((claim.namespace.clone()?, claim.name.clone()?))),
            volume: spec
                .csi
                .as_ref()
                .filter(|csi| csi.driver == DRIVER_NAME)
                .map(|csi| csi.volume_handle.clone()),
            shared: modes
                .into_iter()
                .any(|mode| matches!(mode.as_str(), "ReadWriteMany" | "ReadOnlyMany")),
        })
    }
}

/// The volumes, by what they are looked up by.
#[derive(Debug, Default)]
pub struct Volumes {
    by_claim: HashMap<(String, String), Arc<SeenVolume>>,
    by_name: HashMap<String, Arc<SeenVolume>>,
}

impl Volumes {
    /// An index of them.
    pub fn new(all: Vec<Arc<SeenVolume>>) -> Self {
        let mut volumes = Self::default();
        for volume in all {
            if let Some(claim) = &volume.claim {
                volumes.by_claim.insert(claim.clone(), Arc::clone(&volume));
            }
            volumes.by_name.insert(volume.name.clone(), volume);
        }
        volumes
    }

    /// What a claim is bound to.
    pub fn claim(&self, namespace: &str, name: &str) -> Claim {
        match self.by_claim.get(&(namespace.to_owned(), name.to_owned())) {
            None => Claim::Unknown,
            Some(bound) => match &bound.volume {
                Some(volume) => Claim::Ours {
                    volume: volume.clone(),
                    shared: bound.shared,
                },
                None => Claim::Foreign,
            },
        }
    }

    /// The driver's volume of a PersistentVolume.
    pub fn volume(&self, name: &str) -> Option<&str> {
        self.by_name.get(name)?.volume.as_deref()
    }
}
