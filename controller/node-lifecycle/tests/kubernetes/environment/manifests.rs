//! Reads and applies the manifests of `deploy/kubernetes`, unchanged.

use std::path::PathBuf;

use kube::Client;
use serde_json::{Value, json};

/// Returns the objects of a file.
pub(crate) fn read(name: &str) -> Vec<Value> {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let path = PathBuf::from(here).join("../../deploy/kubernetes").join(name);
    objects(&std::fs::read_to_string(&path).expect("a manifest"))
}

/// Returns the objects of a text.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).expect("YAML"))
        .filter(|object: &Value| !object.is_null())
        .collect()
}

/// Returns the object of that name among the YAML blocks of a page.
pub(crate) fn on_page(page: &str, name: &str) -> Value {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let path = PathBuf::from(here).join("../../deploy/docs").join(page);
    let text = std::fs::read_to_string(&path).expect("a page");
    let blocks = text.split("```yaml\n").skip(1);
    let mut objects = blocks.map(|block| {
        let block = block.split("```").next().unwrap_or_default();
        serde_saphyr::from_str::<Value>(block).expect("YAML")
    });
    objects.find(|object| object["metadata"]["name"] == name).expect("an object of that name")
}

/// Returns the API path at which objects of this kind are created.
fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (group, plural) = match kind {
        "ServiceAccount" => ("api/v1", "serviceaccounts"),
        "ConfigMap" => ("api/v1", "configmaps"),
        "Deployment" => ("apis/apps/v1", "deployments"),
        "DaemonSet" => ("apis/apps/v1", "daemonsets"),
        "StatefulSet" => ("apis/apps/v1", "statefulsets"),
        "Job" => ("apis/batch/v1", "jobs"),
        "PodDisruptionBudget" => ("apis/policy/v1", "poddisruptionbudgets"),
        "ClusterRole" => ("apis/rbac.authorization.k8s.io/v1", "clusterroles"),
        "ClusterRoleBinding" => ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        "Role" => ("apis/rbac.authorization.k8s.io/v1", "roles"),
        "RoleBinding" => ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
        "Service" => ("api/v1", "services"),
        "NetworkPolicy" => ("apis/networking.k8s.io/v1", "networkpolicies"),
        "Pod" => ("api/v1", "pods"),
        "PersistentVolume" => ("api/v1", "persistentvolumes"),
        "PersistentVolumeClaim" => ("api/v1", "persistentvolumeclaims"),
        "CSIDriver" => ("apis/storage.k8s.io/v1", "csidrivers"),
        "StorageClass" => ("apis/storage.k8s.io/v1", "storageclasses"),
        "VolumeAttributesClass" => ("apis/storage.k8s.io/v1", "volumeattributesclasses"),
        "CustomResourceDefinition" => ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
        "VolumeSnapshotClass" => ("apis/snapshot.storage.k8s.io/v1", "volumesnapshotclasses"),
        "ServiceMonitor" => ("apis/monitoring.coreos.com/v1", "servicemonitors"),
        "PrometheusRule" => ("apis/monitoring.coreos.com/v1", "prometheusrules"),
        "ValidatingAdmissionPolicy" => {
            ("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
        }
        "ValidatingAdmissionPolicyBinding" => {
            ("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings")
        }
        other => panic!("{other}: say where it is made"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{group}/namespaces/{namespace}/{plural}"),
        None => format!("/{group}/{plural}"),
    }
}

/// Creates an object.
pub(crate) async fn create(client: &Client, object: &Value) -> Result<(), String> {
    post(client, object, "").await
}

/// Checks that the API server would create the object and knows each of its fields.
pub(crate) async fn would_create(client: &Client, object: &Value) -> Result<(), String> {
    post(client, object, "?dryRun=All&fieldValidation=Strict").await
}

/// Checks that the API server would create the object or change the existing one to it, and knows
/// each of its fields.
pub(crate) async fn would_apply(client: &Client, object: &Value) -> Result<(), String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let how = "fieldManager=chart&force=true&dryRun=All&fieldValidation=Strict";
    let body = serde_json::to_vec(object).map_err(|e| e.to_string())?;
    let request = http::Request::patch(format!("{}/{name}?{how}", collection(object)))
        .header("content-type", "application/apply-patch+yaml")
        .body(body)
        .map_err(|e| e.to_string())?;
    let taken: Result<Value, kube::Error> = client.request(request).await;
    taken.map(drop).map_err(|e| format!("{} {name}: {e}", object["kind"]))
}

/// Returns whether the API server serves objects of this kind.
pub(crate) async fn is_served(client: &Client, kind: &str) -> Result<bool, String> {
    let path = collection(&json!({"kind": kind}));
    let request = http::Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    let listed: Result<Value, kube::Error> = client.request(request).await;
    listed.map(|_| true).map_err(|e| format!("{kind}: {e}"))
}

async fn post(client: &Client, object: &Value, how: &str) -> Result<(), String> {
    let body = serde_json::to_vec(object).map_err(|e| e.to_string())?;
    let request = http::Request::post(format!("{}{how}", collection(object)))
        .header("content-type", "application/json")
        .body(body)
        .map_err(|e| e.to_string())?;
    let made: Result<Value, kube::Error> = client.request(request).await;
    made.map(drop).map_err(|e| format!("{} {}: {e}", object["kind"], object["metadata"]["name"]))
}

/// Creates all objects of the files.
pub(crate) async fn apply(client: &Client, files: &[&str]) -> Result<(), String> {
    for file in files {
        for object in read(file) {
            create(client, &object).await?;
        }
    }
    Ok(())
}
