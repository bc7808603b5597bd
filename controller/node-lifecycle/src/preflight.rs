//! `ebs-csi-node-lifecycle preflight`: reports what in a cluster this driver refuses or ignores,
//! before it is installed. Read-only.

mod finding;
mod installation;
mod nodes;
mod pods;
mod volumes;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ebs_csi_proto::program::{self, Exit};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::flags::VERSION;
use finding::print;
pub(crate) use finding::{Finding, Severity};
use volumes::Volume;

/// The first argument that selects the preflight.
pub const SUBCOMMAND: &str = "preflight";

const PAGE: u32 = 250;

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One line for each.
    Text,
    /// One JSON document.
    Json,
}

/// Says what in a cluster this driver refuses or ignores. Reads only. Exit status: 0 nothing is
/// refused, 1 something is refused or could not be read, 64 wrong command line.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-node-lifecycle preflight", version = VERSION)]
pub struct Flags {
    /// A kubeconfig file; unset: the pod's service account.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How findings are written.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

impl Flags {
    /// Parses the command line after the word `preflight`.
    ///
    /// # Errors
    /// [`Exit`]: the help, the version, or a wrong flag.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        let mut flags: Self = program::parse(arguments)?;
        flags.kubeconfig = flags.kubeconfig.filter(|file| !file.as_os_str().is_empty());
        Ok(flags)
    }
}

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
    findings.extend(judged(client, installation::ours, installation::deployments).await);
    findings.extend(judged(client, installation::ours, installation::daemon_sets).await);
    match list(client, |of: CSINode| nodes::served(&of)).await {
        Ok(served) => {
            let served = served.into_iter().collect();
            let problems = |node: Node| [nodes::Judged::of(&node, &served)];
            findings.extend(judged(client, problems, nodes::findings).await);
        }
        Err(error) => findings.push(unreadable("csinodes", &error)),
    }
    findings.extend(judged(client, |class| [class], volumes::classes).await);
    findings.extend(judged(client, |object| Volume::of(&object), volumes::volumes).await);
    findings.extend(judged(client, |pod| pods::copies(&pod), pods::findings).await);
    findings
}

/// Returns the findings about what `keep` keeps of each object. The objects are dropped page by
/// page: all pods of a large cluster take gigabytes.
async fn judged<K, I: IntoIterator>(
    client: &Client,
    keep: impl Fn(K) -> I,
    judge: impl FnOnce(&[I::Item]) -> Vec<Finding>,
) -> Vec<Finding>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
{
    match list(client, keep).await {
        Ok(kept) => judge(&kept),
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

async fn list<K, I: IntoIterator>(
    client: &Client,
    keep: impl Fn(K) -> I,
) -> Result<Vec<I::Item>, kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut parameters = ListParams::default().limit(PAGE);
    let mut kept = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        kept.extend(page.items.into_iter().flat_map(&keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(kept),
        }
    }
}
