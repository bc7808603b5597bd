//! `ebs-csi-node-lifecycle preflight`: reports what in a cluster this driver refuses or ignores,
//! before it is installed. Read-only.

mod finding;
mod flags;
mod installation;
mod nodes;
mod pods;
mod volumes;

use std::io::Write;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use finding::print;
pub(crate) use finding::{Finding, Severity};
pub use flags::{Flags, Output};

/// The first argument that selects the preflight.
pub const SUBCOMMAND: &str = "preflight";

const PAGE: u32 = 250;

/// Runs all checks and prints the findings. Returns whether something is refused.
///
/// # Errors
/// When standard output cannot be written.
pub async fn run(client: Client, output: Output) -> std::io::Result<bool> {
    let findings = find_all(&client).await;
    let mut stdout = std::io::stdout().lock();
    print(&findings, output, &mut stdout)?;
    stdout.flush()?;
    Ok(findings.iter().any(|f| f.severity == Severity::Refused))
}

/// Returns all findings, in the order of their subjects.
async fn find_all(client: &Client) -> Vec<Finding> {
    let drivers: Api<CSIDriver> = Api::all(client.clone());
    let mut findings = match drivers.get_opt(ebs_csi_proto::DRIVER_NAME).await {
        Ok(found) => vec![installation::driver(found.as_ref())],
        Err(error) => vec![unreadable("csidrivers", &error)],
    };
    findings.extend(judged(client, installation::deployments).await);
    findings.extend(judged(client, installation::daemon_sets).await);
    match list::<CSINode>(client).await {
        Ok(registered) => {
            let judge = |all: &[Node]| nodes::judge(all, &registered);
            findings.extend(judged(client, judge).await);
        }
        Err(error) => findings.push(unreadable("csinodes", &error)),
    }
    findings.extend(judged(client, volumes::classes).await);
    findings.extend(judged(client, volumes::volumes).await);
    findings.extend(judged(client, pods::judge).await);
    findings
}

async fn judged<K>(client: &Client, judge: impl FnOnce(&[K]) -> Vec<Finding>) -> Vec<Finding>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
{
    match list::<K>(client).await {
        Ok(all) => judge(&all),
        Err(error) => vec![unreadable(&K::plural(&()), &error)],
    }
}

/// Returns a refusal: a resource that cannot be read may contain anything.
fn unreadable(resource: &str, error: &kube::Error) -> Finding {
    Finding {
        severity: Severity::Refused,
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
