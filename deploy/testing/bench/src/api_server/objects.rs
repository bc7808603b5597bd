//! Objects of realistic size, with the fields that this driver ignores: without those fields, a
//! program that stores and parses objects would look better than it is.

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_sandbox::ZONE;
use serde_json::{Value, json};

const THEN: &str = "2026-01-01T00:00:00Z";

/// Returns `managedFields`, which server-side apply adds to each object, of about `bytes` bytes.
fn managed(by: &str, bytes: usize) -> Value {
    let fields: serde_json::Map<String, Value> = (0..bytes / 40)
        .map(|number| (format!("f:field-of-the-object-{number:03}"), json!({".": {}})))
        .collect();
    json!([{"manager": by, "operation": "Update", "apiVersion": "v1", "time": THEN, "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

/// Returns a Node of about 12 KB, with 50 images.
pub(crate) fn node(name: &str, instance: &str, boot: &str, ready: bool) -> Value {
    let images: Vec<Value> = (0..50)
        .map(|number| {
            json!({"names": [format!("registry.example.com/team/application-{number:02}@sha256:{:064x}", number * 7919), format!("registry.example.com/team/application-{number:02}:v1.{number}.0")], "sizeBytes": 123_456_789 + number})
        })
        .collect();
    let labels = json!({
        "topology.kubernetes.io/zone": ZONE, "topology.kubernetes.io/region": "us-east-1", "topology.ebs.csi.aws.com/zone": ZONE,
        "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "m5.large",
        "eks.amazonaws.com/nodegroup": "workers", "eks.amazonaws.com/capacityType": "ON_DEMAND",
    });
    json!({
        "metadata": {"name": name, "labels": labels, "creationTimestamp": THEN, "managedFields": managed("kubelet", 4000),
            "annotations": {"csi.volume.kubernetes.io/nodeid": json!({DRIVER_NAME: instance}).to_string(), "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {"providerID": format!("aws:///{ZONE}/{instance}")},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "58"}, "allocatable": {"cpu": "7910m", "memory": "30Gi", "pods": "58"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "conditions": [
                {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory", "message": "kubelet has sufficient memory available", "lastHeartbeatTime": THEN, "lastTransitionTime": THEN},
                {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure", "message": "kubelet has no disk pressure", "lastHeartbeatTime": THEN, "lastTransitionTime": THEN},
                {"type": "Ready", "status": if ready { "True" } else { "Unknown" }, "reason": "KubeletReady", "message": "kubelet is posting ready status", "lastHeartbeatTime": THEN, "lastTransitionTime": THEN},
            ],
            "nodeInfo": {"bootID": boot, "architecture": "amd64", "containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "6.12.40", "kubeProxyVersion": "",
                "kubeletVersion": "v1.34.1", "machineID": "ec2", "operatingSystem": "linux", "osImage": "Amazon Linux 2023", "systemUUID": "ec2"},
            "images": images,
        },
    })
}

/// Returns a Pod of about 6 KB that uses `claims`, which may be empty.
pub(crate) fn pod(namespace: &str, name: &str, node: &str, claims: &[String]) -> Value {
    let mut volumes: Vec<Value> = claims
        .iter()
        .enumerate()
        .map(|(number, claim)| json!({"name": format!("data-{number}"), "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    volumes.push(json!({"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}, {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}));
    let variables: Vec<Value> = (0..20)
        .map(|number| json!({"name": format!("APPLICATION_SETTING_{number:02}"), "value": format!("a value of ordinary length {number}")}))
        .collect();
    json!({
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": THEN, "generateName": "application-", "managedFields": managed("kube-controller-manager", 2500),
            "labels": {"app": "application", "pod-template-hash": "7d9f8b6c54", "statefulset.kubernetes.io/pod-name": name},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "application", "uid": "11111111-1111-4111-8111-111111111111", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"nodeName": node, "restartPolicy": "Always", "serviceAccountName": "default", "schedulerName": "default-scheduler", "volumes": volumes,
            "containers": [{"name": "main", "image": "registry.example.com/team/application:v1", "env": variables, "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}, "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
        "status": {"phase": "Running", "podIP": "10.0.1.1", "startTime": THEN,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": THEN}, {"type": "PodScheduled", "status": "True", "lastTransitionTime": THEN}],
            "containerStatuses": [{"name": "main", "image": "registry.example.com/team/application:v1", "imageID": format!("sha256:{:064x}", 1), "ready": true, "restartCount": 0, "state": {"running": {"startedAt": THEN}}}]},
    })
}

/// Returns a PersistentVolume of about 2 KB, bound to a claim.
pub(crate) fn claim_volume(name: &str, namespace: &str, claim: &str, handle: &str) -> Value {
    json!({
        "metadata": {"name": name, "creationTimestamp": THEN, "finalizers": ["kubernetes.io/pv-protection", "external-attacher/ebs-csi-aws-com"],
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER_NAME}, "managedFields": managed("csi-provisioner", 1000)},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "gp3", "volumeMode": "Filesystem",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": "22222222-2222-4222-8222-222222222222"},
            "csi": {"driver": DRIVER_NAME, "volumeHandle": handle, "fsType": "ext4", "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "1760000000000-1234-ebs.csi.aws.com"}},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": [ZONE]}]}]}}},
        "status": {"phase": "Bound"},
    })
}

/// Returns a VolumeAttachment of about 1.5 KB.
pub(crate) fn attachment(name: &str, volume: &str, node: &str, instance: &str) -> Value {
    json!({
        "metadata": {"name": name, "creationTimestamp": THEN, "finalizers": ["external-attacher/ebs-csi-aws-com"], "managedFields": managed("csi-attacher", 800),
            "annotations": {"csi.alpha.kubernetes.io/node-id": instance}},
        "spec": {"attacher": DRIVER_NAME, "nodeName": node, "source": {"persistentVolumeName": volume}},
        "status": {"attached": true, "attachmentMetadata": {"devicePath": "/dev/xvdba"}},
    })
}

/// Returns the CSINode that a kubelet writes when this driver is registered.
pub(crate) fn csi_node(node: &str, uid: &Value, instance: &str) -> Value {
    json!({
        "metadata": {"name": node, "creationTimestamp": THEN, "managedFields": managed("kubelet", 300),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]},
        "spec": {"drivers": [{"name": DRIVER_NAME, "nodeID": instance, "topologyKeys": ["topology.ebs.csi.aws.com/zone"], "allocatable": {"count": 25}}]},
    })
}

pub(crate) fn lease(node: &str, renewed: jiff::Timestamp) -> Value {
    json!({
        "metadata": {"namespace": "kube-node-lease", "name": node, "creationTimestamp": THEN, "managedFields": managed("kubelet", 300)},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": format!("{renewed:.6}")},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_documented_sizes() {
        let rows = [
            (node("n", "i-1", "b", true), 9_000..16_000),
            (pod("a", "p", "n", &["c".to_owned()]), 4_500..8_000),
            (claim_volume("v", "a", "c", "vol-1"), 1_500..3_000),
            (attachment("x", "v", "n", "i-1"), 1_000..2_000),
        ];
        for (object, size) in rows {
            let length = object.to_string().len();
            assert!(size.contains(&length), "{length} is not in {size:?}");
        }
    }
}
