//! Reads and applies the manifests of `deploy/install/manifests`, unchanged.

use std::path::PathBuf;

use kube::Client;
use serde_json::{Value, json};

use crate::environment::world::Outcome;

/// Returns the objects of a file.
pub(crate) fn read(name: &str) -> Vec<Value> {
    let path = deploy().join("install/manifests").join(name);
    objects(&std::fs::read_to_string(&path).expect("a manifest"))
}

/// Returns the repository's directory `deploy`.
pub(crate) fn deploy() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    PathBuf::from(here).join("../../deploy")
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
    let text = std::fs::read_to_string(deploy().join("docs").join(page)).expect("a page");
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
    let group = match kind {
        "ServiceAccount" | "ConfigMap" | "Service" | "Pod" => "api/v1",
        "PersistentVolume" | "PersistentVolumeClaim" => "api/v1",
        "Deployment" | "DaemonSet" | "StatefulSet" => "apis/apps/v1",
        "Job" => "apis/batch/v1",
        "PodDisruptionBudget" => "apis/policy/v1",
        "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => {
            "apis/rbac.authorization.k8s.io/v1"
        }
        "NetworkPolicy" => "apis/networking.k8s.io/v1",
        "CSIDriver" | "StorageClass" | "VolumeAttributesClass" => "apis/storage.k8s.io/v1",
        "CustomResourceDefinition" => "apis/apiextensions.k8s.io/v1",
        "VolumeSnapshotClass" => "apis/snapshot.storage.k8s.io/v1",
        "ServiceMonitor" | "PrometheusRule" => "apis/monitoring.coreos.com/v1",
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => {
            "apis/admissionregistration.k8s.io/v1"
        }
        other => panic!("{other}: say where it is made"),
    };
    let lower = kind.to_lowercase();
    let plural = match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if lower.ends_with('s') => format!("{lower}es"),
        None => format!("{lower}s"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{group}/namespaces/{namespace}/{plural}"),
        None => format!("/{group}/{plural}"),
    }
}

/// Creates an object.
pub(crate) async fn create(client: &Client, object: &Value) -> Outcome {
    post(client, object, "").await
}

/// Checks that the API server would create the object and knows each of its fields.
pub(crate) async fn would_create(client: &Client, object: &Value) -> Outcome {
    post(client, object, "?dryRun=All&fieldValidation=Strict").await
}

/// Checks that the API server would create the object or change the existing one to it, and knows
/// each of its fields.
pub(crate) async fn would_apply(client: &Client, object: &Value) -> Outcome {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let how = "fieldManager=chart&force=true&dryRun=All&fieldValidation=Strict";
    let request = http::Request::patch(format!("{}/{name}?{how}", collection(object)));
    send(client, request, "application/apply-patch+yaml", object).await
}

/// Returns whether the API server serves objects of this kind.
pub(crate) async fn is_served(client: &Client, kind: &str) -> Outcome<bool> {
    let request = http::Request::get(collection(&json!({"kind": kind}))).body(Vec::new())?;
    client.request::<Value>(request).await?;
    Ok(true)
}

async fn post(client: &Client, object: &Value, how: &str) -> Outcome {
    let request = http::Request::post(format!("{}{how}", collection(object)));
    send(client, request, "application/json", object).await
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    content_type: &str,
    object: &Value,
) -> Outcome {
    let request = request.header("content-type", content_type).body(serde_json::to_vec(object)?)?;
    let taken: Result<Value, kube::Error> = client.request(request).await;
    let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
    Ok(taken.map(drop).map_err(|e| format!("{kind} {name}: {e}"))?)
}
