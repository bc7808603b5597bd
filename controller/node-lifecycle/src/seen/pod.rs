//! Pods that have claims.

use ebs_csi_safe_detach::lifecycle::{Pod, Toleration};
use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;

use super::{OPT_OUT, Volumes};

/// A pod that is bound to a node and has claims.
#[derive(Clone, Debug)]
pub struct SeenPod {
    /// Its node.
    pub node: String,
    /// The names of its claims, in its own namespace.
    claims: Vec<String>,
    /// All but the claims.
    pod: Pod,
}

impl SeenPod {
    /// What matters of it; `None` for a pod without a node or without claims.
    pub fn new(object: &core::Pod) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let node = spec.node_name.clone()?;
        let name = object.name_any();
        let claims: Vec<String> = spec
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| {
                let claim = volume.persistent_volume_claim.as_ref();
                let named = claim.map(|claim| claim.claim_name.clone());
                // A generic ephemeral volume's claim is named after both.
                named.or_else(|| {
                    volume.ephemeral.as_ref()?;
                    Some(format!("{name}-{}", volume.name))
                })
            })
            .collect();
        if claims.is_empty() {
            return None;
        }
        let phase = object.status.as_ref().and_then(|s| s.phase.as_deref());
        let tolerations = spec.tolerations.iter().flatten().map(|t| Toleration {
            key: t.key.clone().unwrap_or_default(),
            effect: t.effect.clone().unwrap_or_default(),
            bounded: t.toleration_seconds.is_some(),
        });
        let pod = Pod {
            namespace: object.namespace().unwrap_or_default(),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            ended: matches!(phase, Some("Succeeded" | "Failed")),
            claims: Vec::new(),
            tolerations: tolerations.collect(),
            of_daemon_set: object
                .owner_references()
                .iter()
                .any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true)),
            mirror: object
                .annotations()
                .contains_key("kubernetes.io/config.mirror"),
            opted_out: object
                .annotations()
                .get(OPT_OUT)
                .is_some_and(|v| v == "off"),
            name,
        };
        Some(Self { node, claims, pod })
    }

    /// With what its claims are bound to.
    pub fn resolve(&self, volumes: &Volumes) -> Pod {
        let namespace = &self.pod.namespace;
        let claims = self
            .claims
            .iter()
            .map(|name| volumes.claim(namespace, name));
        Pod {
            claims: claims.collect(),
            ..self.pod.clone()
        }
    }
}
