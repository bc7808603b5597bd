//! Pods that have claims, and pods that are opted out of failover.

use ebs_csi_safe_detach::lifecycle::{ObjectVersion, Pod, Toleration};
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::object_table::{Table, TableRow, Texts};
use super::{OPT_OUT, Object, Retained, VolumeRow, claim_of};

const KEY: usize = 0;
const NODE: usize = 1;
const UID: usize = 2;
const VERSION: usize = 3;
/// Names of claims, one per line.
const CLAIMS: usize = 4;

/// A pod that is bound to a node and has claims or is opted out.
#[derive(Clone, Debug)]
pub(crate) struct PodRow {
    texts: Texts<5>,
    /// Tolerations without a time limit.
    tolerations: Box<[Toleration]>,
    deleting: bool,
    /// Whether no container of the pod has started.
    pending: bool,
    ended: bool,
    of_daemon_set: bool,
    mirror: bool,
    opted_out: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    node_name: Option<String>,
    volumes: Vec<Volume>,
    tolerations: Vec<core::Toleration>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    persistent_volume_claim: Option<core::PersistentVolumeClaimVolumeSource>,
    ephemeral: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    phase: Option<String>,
}

impl TableRow for PodRow {
    fn key(&self) -> &str {
        self.texts.get(KEY)
    }
}

impl Retained for PodRow {
    type Kind = core::Pod;
    type Spec = Spec;
    type Status = Status;

    /// Returns `None` for a pod without a node, and for one without claims that is not opted out.
    fn new(object: Object<Spec, Status>) -> Option<Self> {
        let (meta, spec) = (object.metadata, object.spec);
        let node = spec.node_name?;
        let claims: Vec<String> = spec
            .volumes
            .into_iter()
            .filter_map(|volume| {
                let named = volume.persistent_volume_claim.map(|claim| claim.claim_name);
                // The claim of a generic ephemeral volume has the names of both the pod and the
                // volume.
                named.or_else(|| {
                    volume.ephemeral?;
                    Some(format!("{}-{}", meta.name, volume.name))
                })
            })
            .collect();
        let opted_out = meta.annotations.get(OPT_OUT).is_some_and(|v| v == "off");
        // Kubernetes would evict a pod that is opted out, too, because of the taint.
        if claims.is_empty() && !opted_out {
            return None;
        }
        let key = format!("{}/{}", meta.namespace.unwrap_or_default(), meta.name);
        let endless = spec.tolerations.into_iter().filter(|t| t.toleration_seconds.is_none());
        let endless = endless.map(|t| Toleration {
            key: t.key.unwrap_or_default(),
            effect: t.effect.unwrap_or_default(),
        });
        let mut managers = meta.owner_references.iter().filter(|o| o.controller);
        Some(Self {
            tolerations: endless.collect(),
            deleting: meta.deletion_timestamp.is_some(),
            pending: matches!(object.status.phase.as_deref(), None | Some("Pending")),
            ended: matches!(object.status.phase.as_deref(), Some("Succeeded" | "Failed")),
            of_daemon_set: managers.any(|owner| owner.kind == "DaemonSet"),
            mirror: meta.annotations.contains_key("kubernetes.io/config.mirror"),
            opted_out,
            texts: Texts::new([&key, &node, &meta.uid, &meta.resource_version, &claims.join("\n")]),
        })
    }
}

impl PodRow {
    pub(crate) fn node(&self) -> &str {
        self.texts.get(NODE)
    }

    /// Returns whether the pod cannot start without the volume of this claim (`NAMESPACE/NAME`).
    pub(crate) fn waits_for(&self, claim: &str) -> bool {
        let (namespace, _) = self.name();
        let name = claim.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/'));
        let mut claims = self.texts.get(CLAIMS).split('\n');
        self.pending && !self.deleting && claims.any(|claim| Some(claim) == name)
    }

    /// Returns the namespace and the name.
    pub(crate) fn name(&self) -> (&str, &str) {
        self.key().split_once('/').unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.texts.get(UID)
    }

    /// Returns the pod together with the volumes that its claims are bound to.
    pub(crate) fn resolve(&self, volumes: &Table<VolumeRow>) -> Pod {
        let (namespace, name) = self.name();
        let claims = self.texts.get(CLAIMS).split('\n').filter(|claim| !claim.is_empty());
        Pod {
            object: ObjectVersion {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: self.uid().to_owned(),
                version: self.texts.get(VERSION).to_owned(),
            },
            deleting: self.deleting,
            ended: self.ended,
            claims: claims.map(|claim| claim_of(volumes, namespace, claim)).collect(),
            tolerations: self.tolerations.to_vec(),
            of_daemon_set: self.of_daemon_set,
            mirror: self.mirror,
            opted_out: self.opted_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use ebs_csi_safe_detach::lifecycle::{Claim, Ineligible, eligible};
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::object::retained;

    fn row(change: impl FnOnce(&mut Value)) -> Option<PodRow> {
        let mut object = json!({
            "metadata": {"namespace": "db", "name": "db-0", "uid": "u", "resourceVersion": "7", "managedFields": [{"fieldsV1": {"f:x": {}}}]},
            "spec": {"nodeName": "n", "containers": [{"name": "main"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}, {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                    {"name": "conf", "configMap": {"name": "c"}}],
                "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
            "status": {"phase": "Running"},
        });
        change(&mut object);
        retained(object)
    }

    #[test]
    fn pod_fields_needed_for_failover_are_kept() {
        let pod = row(|_| ()).expect("retained");
        assert_eq!((pod.key(), pod.node()), ("db/db-0", "n"));
        let pod = pod.resolve(&Table::default());
        let [namespace, name, uid, version] = ["db", "db-0", "u", "7"].map(str::to_owned);
        assert_eq!(pod.object, ObjectVersion { namespace, name, uid, version });
        assert_eq!(pod.claims, [Claim::Unknown, Claim::Unknown]);
        assert!(!pod.deleting && !pod.ended && !pod.mirror && !pod.of_daemon_set);
        assert!(pod.tolerations.is_empty());
    }

    #[test]
    fn pod_flags_are_read_from_object_fields() {
        type Is = fn(&Pod) -> bool;
        let owner = json!([{"kind": "DaemonSet", "name": "d", "controller": true}]);
        let rows: [(&str, &str, Value, Is); 6] = [
            ("metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z"), |p| p.deleting),
            ("status", "phase", json!("Failed"), |p| p.ended),
            ("metadata", "ownerReferences", owner, |p| p.of_daemon_set),
            ("metadata", "annotations", json!({"kubernetes.io/config.mirror": "x"}), |p| p.mirror),
            ("metadata", "annotations", json!({OPT_OUT: "off"}), |p| p.opted_out),
            ("spec", "tolerations", json!([{"operator": "Exists"}]), |p| {
                let mut pod = p.clone();
                pod.claims = vec![Claim::Ours { volume: "vol-1".to_owned(), shared: false }];
                eligible(&pod) == Err(Ineligible::Tolerates)
            }),
        ];
        let plain = row(|_| ()).expect("retained").resolve(&Table::default());
        for (part, field, value, is) in rows {
            let pod = row(|p| p[part][field] = value).expect("retained");
            assert!(is(&pod.resolve(&Table::default())) && !is(&plain), "{field}");
        }
    }

    #[test]
    fn only_pending_pod_waits_for_its_claims() {
        let with = |change: fn(&mut Value)| {
            let pod = row(|p| {
                p["status"]["phase"] = json!("Pending");
                change(p);
            });
            pod.expect("retained").waits_for("db/data-db-0")
        };
        assert!(with(|_| ()));
        assert!(with(|p| p["status"] = json!({})));
        assert!(!with(|p| p["status"]["phase"] = json!("Running")));
        assert!(!with(|p| p["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")));
        assert!(!with(|p| p["metadata"]["namespace"] = json!("d")));
        assert!(!with(
            |p| p["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("x")
        ));
    }

    #[test]
    fn pod_without_node_or_claims_is_ignored() {
        assert!(row(|p| p["spec"]["nodeName"] = Value::Null).is_none());
        let without_claims =
            |p: &mut Value| p["spec"]["volumes"] = json!([{"name": "conf", "configMap": {}}]);
        assert!(row(without_claims).is_none());
        let opted_out = row(|p| {
            without_claims(p);
            p["metadata"]["annotations"] = json!({OPT_OUT: "off"});
        });
        let opted_out = opted_out.expect("retained").resolve(&Table::default());
        assert!(opted_out.opted_out && opted_out.claims.is_empty());
    }
}
