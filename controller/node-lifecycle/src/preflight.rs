//! `ebs-csi-node-lifecycle preflight`: reports what in a cluster this driver refuses or ignores,
//! before it is installed. Read-only.

mod finding;
mod flags;
mod installation;
mod nodes;
mod pods;
mod volumes;

use std::io::Write;
use std::process::ExitCode;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use finding::print;
pub use finding::{Finding, Verdict};
pub use flags::{Flags, Output};

/// The first argument that selects the preflight.
pub const SUBCOMMAND: &str = "preflight";

/// Most objects in one page of a list.
const PAGE: u32 = 250;

/// Runs all checks and prints the findings. Returns 0 when nothing is refused, 1 otherwise.
///
/// # Errors
/// When standard output cannot be written.
pub async fn run(client: Client, output: Output) -> std::io::Result<ExitCode> {
    let findings = find_all(&client).await;
    let mut stdout = std::io::stdout().lock();
    print(&findings, output, &mut stdout)?;
    stdout.flush()?;
    let refused = findings.iter().any(|f| f.verdict == Verdict::Refused);
    Ok(ExitCode::from(u8::from(refused)))
}

/// Returns all findings, in the order of their subjects.
pub async fn find_all(client: &Client) -> Vec<Finding> {
    let mut findings = installation(client).await;
    match list::<CSINode>(client).await {
        Ok(registered) => match list::<Node>(client).await {
            Ok(all) => findings.extend(nodes::judge(&all, &registered)),
            Err(error) => findings.push(unreadable("nodes", &error)),
        },
        Err(error) => findings.push(unreadable("csinodes", &error)),
    }
    match list::<StorageClass>(client).await {
        Ok(all) => findings.extend(volumes::classes(&all)),
        Err(error) => findings.push(unreadable("storageclasses", &error)),
    }
    match list::<PersistentVolume>(client).await {
        Ok(all) => findings.extend(volumes::volumes(&all)),
        Err(error) => findings.push(unreadable("persistentvolumes", &error)),
    }
    match list::<Pod>(client).await {
        Ok(all) => findings.extend(pods::judge(&all)),
        Err(error) => findings.push(unreadable("pods", &error)),
    }
    findings
}

async fn installation(client: &Client) -> Vec<Finding> {
    let mut findings = Vec::new();
    let drivers: Api<CSIDriver> = Api::all(client.clone());
    match drivers.get_opt(ebs_csi_proto::DRIVER_NAME).await {
        Ok(found) => findings.push(installation::driver(found.as_ref())),
        Err(error) => findings.push(unreadable("csidrivers", &error)),
    }
    match list::<Deployment>(client).await {
        Ok(all) => findings.extend(installation::workloads("Deployment", &all)),
        Err(error) => findings.push(unreadable("deployments", &error)),
    }
    match list::<DaemonSet>(client).await {
        Ok(all) => findings.extend(installation::workloads("DaemonSet", &all)),
        Err(error) => findings.push(unreadable("daemonsets", &error)),
    }
    findings
}

/// Returns a refusal: a resource that cannot be read may contain anything.
fn unreadable(resource: &str, error: &kube::Error) -> Finding {
    Finding {
        verdict: Verdict::Refused,
        kind: "Access",
        name: resource.to_owned(),
        says: format!("could not be read: {error}"),
        next: format!("see that the API server is there, and allow get and list of {resource}"),
    }
}

async fn list<K>(client: &Client) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut parameters = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}
