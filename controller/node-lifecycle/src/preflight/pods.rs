//! Pods that hold copies of the host's mounts.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::finding::names;
use super::{Finding, Severity};

/// Directories beneath which kubelet mounts volumes.
const ABOVE_KUBELET: [&str; 5] =
    ["/", "/var", "/var/lib", "/var/lib/kubelet", "/var/lib/kubelet/pods"];

/// A host path above kubelet's mounts that a pod has without propagation.
pub(super) struct Copy {
    owner: String,
    path: &'static str,
    pod: String,
}

/// Returns the copies that a pod holds while it runs.
pub(super) fn copies(pod: &Pod) -> Vec<Copy> {
    if has_ended(pod) {
        return Vec::new();
    }
    let copy = |path| Copy { owner: owner(pod), path, pod: pod.name_any() };
    unpropagated_host_paths(pod).into_iter().map(copy).collect()
}

/// Returns one finding for the pods of one owner.
pub(super) fn findings(all: &[Copy]) -> Vec<Finding> {
    let mut by_owner: BTreeMap<(&String, &str), Vec<String>> = BTreeMap::new();
    for Copy { owner, path, pod } in all {
        by_owner.entry((owner, path)).or_default().push(pod.clone());
    }
    if by_owner.is_empty() {
        let says = "none holds copies of the host's mounts".to_owned();
        return vec![Finding::fine("Pod", says)];
    }
    let of_owner = by_owner.iter().map(|((owner, path), pods)| Finding {
        severity: Severity::Noted,
        kind: "Pod",
        name: (*owner).clone(),
        says: format!(
            "mounts the host's {path} without propagation ({}): file systems that were mounted when it started stay busy there until it ends",
            names(pods)
        ),
        next: "give the volumeMount mountPropagation: HostToContainer".to_owned(),
    });
    of_owner.collect()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn owner(pod: &Pod) -> String {
    let namespace = pod.namespace().unwrap_or_default();
    let mut owners = pod.owner_references().iter();
    match owners.find(|owner| owner.controller == Some(true)) {
        Some(owner) => format!("{namespace}/{}/{}", owner.kind, owner.name),
        None => format!("{namespace}/{}", pod.name_any()),
    }
}

fn unpropagated_host_paths(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let volumes = spec.volumes.iter().flatten();
    let host = volumes.filter_map(|volume| {
        let path = Path::new("/").join(&volume.host_path.as_ref()?.path);
        // Equal paths may differ in slashes and in `.`.
        let above = ABOVE_KUBELET.into_iter().find(|above| path == Path::new(above))?;
        Some((&volume.name, above))
    });
    let init = spec.init_containers.iter().flatten();
    let containers: Vec<_> = spec.containers.iter().chain(init).collect();
    let is_copied = |name: &String| {
        let mounts = containers.iter().flat_map(|c| c.volume_mounts.iter().flatten());
        mounts
            .filter(|mount| mount.name == *name)
            .any(|mount| matches!(mount.mount_propagation.as_deref(), None | Some("" | "None")))
    };
    host.filter(|(name, _)| is_copied(name)).map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, path: &str, propagation: Option<&str>, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "m", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]},
            "spec": {
                "volumes": [{"name": "host", "hostPath": {"path": path}}],
                "containers": [{"name": "c", "volumeMounts": [
                    {"name": "host", "mountPath": "/host", "mountPropagation": propagation}]}],
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn judge(pods: &[Pod]) -> Vec<Finding> {
        findings(&pods.iter().flat_map(copies).collect::<Vec<_>>())
    }

    #[test]
    fn host_path_above_kubelet_without_propagation_is_noted() {
        let rows = [
            ("/", None, "Running", Severity::Noted),
            ("/var/lib/", Some("None"), "Running", Severity::Noted),
            ("//var/./lib/kubelet", None, "Pending", Severity::Noted),
            ("/", Some("HostToContainer"), "Running", Severity::Fine),
            ("/", Some("Bidirectional"), "Running", Severity::Fine),
            ("/var/log", None, "Running", Severity::Fine),
            ("/", None, "Succeeded", Severity::Fine),
        ];
        for (path, propagation, phase, want) in rows {
            let found = judge(&[pod("a", path, propagation, phase)]);
            assert_eq!(found[0].severity, want, "{path} {propagation:?} {phase}");
        }
    }

    #[test]
    fn pods_of_one_owner_are_one_finding() {
        let found = judge(&[pod("a", "/", None, "Running"), pod("b", "/", None, "Running")]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "m/DaemonSet/agent");
        assert!(found[0].says.contains("(a,b)"), "{found:?}");
    }
}
