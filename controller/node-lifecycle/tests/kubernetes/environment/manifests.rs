//! Reads and applies the manifests of `deploy/install/manifests`, unchanged, and what the chart
//! renders.

use std::path::{Path, PathBuf};
use std::process::Command;

use kube::Client;
use serde_json::{Value, json};

use crate::environment::control_plane;
use crate::environment::process::succeed;
use crate::environment::world::TestResult;

/// Returns Helm's path. Without Helm, prints why a scenario is skipped.
pub(crate) fn helm() -> Option<PathBuf> {
    let helm = Some(control_plane::cache().join("bin/helm")).filter(|helm| helm.exists());
    if helm.is_none() {
        println!("skipped: no Helm; ./deploy/testing/clusters/programs/prepare builds it");
    }
    helm
}

/// Returns the objects that the chart renders for a release, with this file of values and these
/// flags.
pub(crate) async fn render(
    helm: &Path,
    (release, namespace): (&str, &str),
    values: Option<&Path>,
    flags: &[&str],
) -> TestResult<Vec<Value>> {
    let mut command = Command::new(helm);
    command.args(["template", release]).arg(deploy().join("install/chart"));
    command.args(["--namespace", namespace, "--kube-version", "1.36.0"]).args(flags);
    if let Some(values) = values {
        command.arg("--values").arg(values);
    }
    Ok(objects(&succeed(command).await?))
}

pub(crate) fn read(name: &str) -> Vec<Value> {
    let path = deploy().join("install/manifests").join(name);
    objects(&std::fs::read_to_string(&path).expect("a manifest"))
}

pub(crate) fn deploy() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    PathBuf::from(here).join("../../deploy")
}

/// Returns the arguments of a container of the first Deployment in a manifest.
pub(crate) fn arguments(manifest: &str, container: &str) -> Vec<String> {
    let objects = read(manifest);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let containers = &deployment.expect("a Deployment")["spec"]["template"]["spec"]["containers"];
    let mut containers = containers.as_array().into_iter().flatten();
    let found = containers.find(|found| found["name"] == container).expect("the container");
    let arguments = found["args"].as_array().into_iter().flatten();
    arguments.filter_map(|argument| argument.as_str().map(str::to_owned)).collect()
}

pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).expect("YAML"))
        .filter(|object: &Value| !object.is_null())
        .collect()
}

/// Returns the API path at which objects of this version and kind are created.
fn collection(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = match text(&object["apiVersion"]) {
        version if version == "v1" => "api/v1".to_owned(),
        version => format!("apis/{version}"),
    };
    let lower = text(&object["kind"]).to_lowercase();
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

pub(crate) async fn create(client: &Client, object: &Value) -> TestResult {
    post(client, object, "").await
}

/// Checks that the API server would create the object and knows each of its fields.
pub(crate) async fn would_create(client: &Client, object: &Value) -> TestResult {
    post(client, object, "?dryRun=All&fieldValidation=Strict").await
}

/// Checks that the API server would create the object or change the existing one to it, and knows
/// each of its fields.
pub(crate) async fn would_apply(client: &Client, object: &Value) -> TestResult {
    patch(client, object, "&dryRun=All").await.map(drop)
}

/// Creates the object or changes the existing one to it, and returns what the API server has then.
pub(crate) async fn apply(client: &Client, object: &Value) -> TestResult<Value> {
    patch(client, object, "").await
}

async fn patch(client: &Client, object: &Value, more: &str) -> TestResult<Value> {
    let how = format!("fieldManager=chart&force=true&fieldValidation=Strict{more}");
    let request = http::Request::patch(format!("{}?{how}", path(object)));
    send(client, request, "application/apply-patch+yaml", object).await
}

pub(crate) async fn delete(client: &Client, object: &Value) -> TestResult {
    let request = http::Request::delete(path(object)).body(Vec::new())?;
    client.request::<Value>(request).await?;
    Ok(())
}

fn path(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    format!("{}/{name}", collection(object))
}

pub(crate) async fn is_served(client: &Client, version: &str, kind: &str) -> TestResult<bool> {
    let path = collection(&json!({"apiVersion": version, "kind": kind}));
    let request = http::Request::get(path).body(Vec::new())?;
    client.request::<Value>(request).await?;
    Ok(true)
}

async fn post(client: &Client, object: &Value, how: &str) -> TestResult {
    let request = http::Request::post(format!("{}{how}", collection(object)));
    send(client, request, "application/json", object).await.map(drop)
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    content_type: &str,
    object: &Value,
) -> TestResult<Value> {
    let request = request.header("content-type", content_type).body(serde_json::to_vec(object)?)?;
    let taken: Result<Value, kube::Error> = client.request(request).await;
    let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
    Ok(taken.map_err(|e| format!("{kind} {name}: {e}"))?)
}
