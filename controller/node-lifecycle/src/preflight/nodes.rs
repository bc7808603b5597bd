//! Nodes on which the driver does not run, or not yet.

use std::collections::{BTreeMap, HashSet};

use ebs_csi_proto::DRIVER_NAME;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use kube::ResourceExt;

use super::finding::names;
use super::{Finding, Severity};
use crate::cluster::STARTUP_TAINT;

/// The oldest kernel that has the interfaces that the node uses.
const OLDEST_KERNEL: (u64, u64) = (5, 15);
/// The label by which EKS marks the node of a Fargate pod.
const COMPUTE_TYPE: &str = "eks.amazonaws.com/compute-type";

/// Why the driver cannot serve a node; the variants are in the order of the report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NodeProblem {
    Windows { serves: bool },
    Fargate,
    HyperPod,
    Arm64,
    Architecture(String),
    Kernel(String),
    Unidentified,
    Tainted,
}

pub(super) struct Judged {
    name: String,
    problems: Vec<NodeProblem>,
}

impl Judged {
    /// Judges a node. `served` are the names of the nodes on which the driver is registered.
    pub(super) fn of(node: &Node, served: &HashSet<String>) -> Self {
        let name = node.name_any();
        Self { problems: problems(node, &name, served.contains(&name)), name }
    }
}

/// Returns the name of a node on which the driver is registered.
pub(super) fn served(registered: &CSINode) -> Option<String> {
    let mut drivers = registered.spec.drivers.iter();
    drivers.any(|driver| driver.name == DRIVER_NAME).then(|| registered.name_any())
}

/// Returns one finding for the nodes with the same reason.
pub(super) fn findings(all: &[Judged]) -> Vec<Finding> {
    let mut by_reason: BTreeMap<&NodeProblem, Vec<String>> = BTreeMap::new();
    for node in all {
        for problem in &node.problems {
            by_reason.entry(problem).or_default().push(node.name.clone());
        }
    }
    if by_reason.is_empty() {
        let says = format!("{} nodes, the driver runs on all", all.len());
        return vec![Finding::fine("Node", says)];
    }
    by_reason.iter().map(|(problem, nodes)| problem.finding(nodes)).collect()
}

fn problems(node: &Node, name: &str, is_served: bool) -> Vec<NodeProblem> {
    if node.labels().get(COMPUTE_TYPE).map(String::as_str) == Some("fargate") {
        return vec![NodeProblem::Fargate];
    }
    let mut all = Vec::new();
    let info = node.status.as_ref().and_then(|s| s.node_info.as_ref());
    if let Some(info) = info {
        if info.operating_system == "windows" {
            return vec![NodeProblem::Windows { serves: is_served }];
        }
        // An empty field has not been written by kubelet yet.
        match info.architecture.as_str() {
            "" | "amd64" => {}
            "arm64" => all.push(NodeProblem::Arm64),
            other => all.push(NodeProblem::Architecture(other.to_owned())),
        }
        let version = &info.kernel_version;
        let is_new = parse_kernel(version).is_some_and(|kernel| kernel >= OLDEST_KERNEL);
        if !is_new && !version.is_empty() {
            all.push(NodeProblem::Kernel(version.clone()));
        }
    }
    let spec = node.spec.as_ref();
    if name.starts_with("hyperpod-") {
        all.push(NodeProblem::HyperPod);
    }
    let provider_id = spec.and_then(|spec| spec.provider_id.as_deref());
    if provider_id.unwrap_or_default().is_empty() && !is_served {
        all.push(NodeProblem::Unidentified);
    }
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    if taints.into_iter().flatten().any(|taint| taint.key == STARTUP_TAINT) {
        all.push(NodeProblem::Tainted);
    }
    all
}

/// Parses the first two numbers of a version such as `5.10.220-209.869.amzn2.x86_64`.
fn parse_kernel(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next()?.parse().ok()?))
}

impl NodeProblem {
    fn finding(&self, nodes: &[String]) -> Finding {
        use Severity::{Ignored, Noted, Refused};
        let elsewhere = "keep pods with EBS volumes off them, or serve them by the former driver";
        let (severity, says, next) = match self {
            Self::Windows { serves: true } => (
                Refused,
                "Windows, and the former driver serves volumes there".to_owned(),
                "this driver does not run on Windows: move these volumes' pods first",
            ),
            Self::Windows { serves: false } => {
                (Ignored, "Windows: this driver does not run there".to_owned(), "")
            }
            Self::Fargate => {
                (Ignored, "Fargate: no EBS volume can be attached there".to_owned(), "")
            }
            Self::HyperPod => {
                (Refused, "HyperPod: the controller refuses to attach there".to_owned(), elsewhere)
            }
            Self::Arm64 => (
                Noted,
                "arm64: the driver runs there if its images were built for arm64, too".to_owned(),
                "build with --platform linux/amd64,linux/arm64, and give helm its digests.yaml",
            ),
            Self::Architecture(found) => (
                Refused,
                format!("architecture {found:?}: the driver runs on amd64 and arm64 alone"),
                elsewhere,
            ),
            Self::Kernel(found) => {
                let (major, minor) = OLDEST_KERNEL;
                let says = format!("kernel {found:?}: {major}.{minor} or later is needed");
                (Refused, says, "choose a newer machine image")
            }
            Self::Unidentified => (
                Noted,
                "no providerID, and this driver is not registered there".to_owned(),
                "with --safe-detach=enforce nobody can speak for them until the driver's node pod runs there",
            ),
            Self::Tainted => (
                Noted,
                format!(
                    "the taint {STARTUP_TAINT} keeps pods away until the driver is ready there"
                ),
                "it goes when the driver is registered and its limit of volumes is known (node-lifecycle --onboarding=on)",
            ),
        };
        Finding { severity, kind: "Node", name: names(nodes), says, next: next.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn found(name: &str, os: &str, arch: &str, kernel: &str, spec: Value) -> Vec<Severity> {
        let node = json!({"metadata": {"name": name}, "spec": spec, "status": {"nodeInfo": {
            "operatingSystem": os, "architecture": arch, "kernelVersion": kernel}}});
        let served = json!({"metadata": {"name": "served"}, "spec": {"drivers": [
            {"name": DRIVER_NAME, "nodeID": "i-0123456789abcdef0"}]}});
        let served = super::served(&serde_json::from_value(served).unwrap());
        let node = Judged::of(&serde_json::from_value(node).unwrap(), &HashSet::from_iter(served));
        findings(&[node]).iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn node_properties_decide_preflight_verdict() {
        use Severity::{Fine, Ignored, Noted, Refused};
        let aws = || json!({"providerID": "aws:///us-east-1a/i-0123456789abcdef0"});
        let tainted = json!({"providerID": "aws:///a/i-0123456789abcdef0",
            "taints": [{"key": STARTUP_TAINT, "effect": "NoExecute"}]});
        let new = "6.1.0-13-amd64";
        let rows = [
            ("n", "linux", "amd64", new, aws(), vec![Fine]),
            ("n", "linux", "amd64", "5.15.0", aws(), vec![Fine]),
            ("n", "linux", "amd64", "5.10.220-209.869.amzn2.x86_64", aws(), vec![Refused]),
            ("n", "linux", "amd64", "unknown", aws(), vec![Refused]),
            ("n", "", "", "", aws(), vec![Fine]),
            ("n", "linux", "arm64", new, aws(), vec![Noted]),
            ("n", "linux", "riscv64", new, aws(), vec![Refused]),
            ("n", "linux", "arm64", "4.14.1", aws(), vec![Noted, Refused]),
            ("n", "windows", "amd64", "10.0.20348", aws(), vec![Ignored]),
            ("served", "windows", "amd64", "10.0.20348", aws(), vec![Refused]),
            ("hyperpod-i-1", "linux", "amd64", new, aws(), vec![Refused]),
            ("n", "linux", "amd64", new, json!({}), vec![Noted]),
            ("served", "linux", "amd64", new, json!({}), vec![Fine]),
            ("n", "linux", "amd64", new, tainted, vec![Noted]),
        ];
        for (name, os, arch, kernel, spec, want) in rows {
            assert_eq!(found(name, os, arch, kernel, spec), want, "{name} {os} {arch} {kernel}");
        }
    }

    #[test]
    fn nodes_of_one_reason_are_one_finding() {
        let nodes = ["a", "b"].map(|name| {
            let metadata = json!({"name": name, "labels": {COMPUTE_TYPE: "fargate"}});
            let node = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            Judged::of(&node, &HashSet::new())
        });
        let names: Vec<_> = findings(&nodes).into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["a,b"]);
    }
}
