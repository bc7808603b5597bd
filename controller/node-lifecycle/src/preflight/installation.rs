//! The tools that manage an installation of the driver, and what their upgrades lose.

use std::collections::BTreeMap;

use ebs_csi_proto::DRIVER_NAME;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::{Resource, ResourceExt};

use super::finding::names;
use super::{Finding, Severity};

const WORKLOADS: [&str; 3] = ["ebs-csi-controller", "ebs-csi-node", "ebs-csi-node-windows"];
/// The label with the name of a chart's objects, and the driver's name in that label.
const NAME_LABEL: (&str, &str) = ("app.kubernetes.io/name", "aws-ebs-csi-driver");
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The tool that applied an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Installer {
    Helm { release: String, namespace: String },
    Eks,
    Manifests,
    Unknown,
}

pub(super) fn driver(found: Option<&CSIDriver>) -> Finding {
    match found {
        Some(object) => finding("CSIDriver", DRIVER_NAME.to_owned(), installer(object)),
        None => Finding::fine("CSIDriver", format!("{DRIVER_NAME} is not installed")),
    }
}

/// Returns the object if it is a workload of a driver of this name.
pub(super) fn ours<K: Resource<DynamicType = ()>>(object: K) -> Option<K> {
    let label = object.labels().get(NAME_LABEL.0).map(String::as_str);
    let is_named = WORKLOADS.contains(&object.name_any().as_str());
    (label == Some(NAME_LABEL.1) || is_named).then_some(object)
}

pub(super) fn deployments(ours: &[Deployment]) -> Vec<Finding> {
    workloads("Deployment", ours, |object| Some(&object.spec.as_ref()?.template))
}

pub(super) fn daemon_sets(ours: &[DaemonSet]) -> Vec<Finding> {
    workloads("DaemonSet", ours, |object| Some(&object.spec.as_ref()?.template))
}

fn workloads<K: Resource<DynamicType = ()>>(
    kind: &'static str,
    ours: &[K],
    template: fn(&K) -> Option<&PodTemplateSpec>,
) -> Vec<Finding> {
    let of_object = |object: &K| {
        let namespace = object.namespace().unwrap_or_default();
        let name = format!("{namespace}/{}", object.name_any());
        let installer = installer(object);
        // Only Helm merges an upgrade with what it rendered before.
        let of_helm = matches!(installer, Installer::Helm { .. });
        let repeated = template(object).filter(|_| of_helm).and_then(repeated_variables);
        let repeated = repeated.map(|names| twice(kind, name.clone(), &names));
        std::iter::once(finding(kind, name, installer)).chain(repeated)
    };
    ours.iter().flat_map(of_object).collect()
}

/// Returns the variables that a container has more than once, as `CONTAINER VARIABLE`; `None` when
/// there is none.
fn repeated_variables(template: &PodTemplateSpec) -> Option<Vec<String>> {
    let repeated_of = |container: &Container| -> Vec<String> {
        let mut times = BTreeMap::<&str, usize>::new();
        for variable in container.env.iter().flatten() {
            *times.entry(&variable.name).or_default() += 1;
        }
        let repeated = times.into_iter().filter(|(_, times)| *times > 1);
        repeated.map(|(name, _)| format!("{} {name}", container.name)).collect()
    };
    let all: Vec<_> = template.spec.as_ref()?.containers.iter().flat_map(repeated_of).collect();
    (!all.is_empty()).then_some(all)
}

fn twice(kind: &'static str, name: String, variables: &[String]) -> Finding {
    Finding {
        severity: Severity::Noted,
        kind,
        name,
        says: format!("has variables more than once: {}", names(variables)),
        next: "the first helm upgrade drops them all, and the driver may lack a region or credentials: run the same helm upgrade once more (deploy/docs/upgrade.md, step 3)"
            .to_owned(),
    }
}

fn installer<K: Resource>(object: &K) -> Installer {
    let managed_by = object.labels().get(MANAGED_BY).map(String::as_str);
    let managers = object.managed_fields().iter();
    let mut managers = managers.filter_map(|entry| entry.manager.as_deref());
    if managed_by == Some("EKS") || managers.any(|manager| manager == "eks") {
        return Installer::Eks;
    }
    let annotations: &BTreeMap<String, String> = object.annotations();
    if let Some(release) = annotations.get(RELEASE_NAME) {
        return Installer::Helm {
            release: release.clone(),
            namespace: annotations.get(RELEASE_NAMESPACE).cloned().unwrap_or_default(),
        };
    }
    match annotations.contains_key(LAST_APPLIED) {
        true => Installer::Manifests,
        false => Installer::Unknown,
    }
}

fn finding(kind: &'static str, name: String, installer: Installer) -> Finding {
    let (says, next) = match installer {
        Installer::Helm { release, namespace } => (
            format!("of the Helm release {release} in the namespace {namespace}"),
            format!(
                "if that is another driver's chart, take it over with helm upgrade of that release, or uninstall it first (helm -n {namespace} uninstall {release}); volumes stay attached and mounted"
            ),
        ),
        Installer::Eks => (
            "of the EKS add-on".to_owned(),
            "delete the add-on with --preserve and its workloads, the DaemonSet with --cascade=orphan, then install with helm --take-ownership --force-conflicts (deploy/docs/upgrade.md, step 2)"
                .to_owned(),
        ),
        Installer::Manifests => (
            "applied with kubectl from plain manifests".to_owned(),
            "delete the workloads, the DaemonSet with --cascade=orphan, then install with helm --take-ownership --force-conflicts (deploy/docs/upgrade.md, step 2)"
                .to_owned(),
        ),
        Installer::Unknown => (
            "there, and nothing on it says who applied it".to_owned(),
            "find out who applies it before you install: two installations would overwrite each other"
                .to_owned(),
        ),
    };
    Finding { severity: Severity::Noted, kind, name, says, next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(name: &str, labels: Value, annotations: Value, manager: &str) -> Deployment {
        let meta = json!({"name": name, "namespace": "kube-system", "labels": labels,
            "annotations": annotations, "managedFields": [{"manager": manager}]});
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    }

    #[test]
    fn helm_eks_kubectl_and_unknown_installers_are_distinguished() {
        let ours = "ebs-csi-controller";
        let helm = json!({RELEASE_NAME: "ebs", RELEASE_NAMESPACE: "kube-system"});
        let rows = [
            (deployment(ours, json!({}), helm, "helm"), "release ebs"),
            (deployment(ours, json!({MANAGED_BY: "EKS"}), json!({}), ""), "EKS add-on"),
            (deployment(ours, json!({}), json!({}), "eks"), "EKS add-on"),
            (deployment(ours, json!({}), json!({LAST_APPLIED: "{}"}), "kubectl"), "kubectl"),
            (deployment(ours, json!({}), json!({}), "argocd"), "nothing on it says"),
            (deployment("x", json!({NAME_LABEL.0: NAME_LABEL.1}), json!({}), ""), "nothing on it"),
        ];
        for (object, want) in rows {
            let found = deployments(&[object]);
            assert_eq!(found.len(), 1, "{want}");
            assert!(found[0].says.contains(want), "{want}: {found:?}");
        }
        let other = deployment("x", json!({}), json!({}), "");
        assert!(super::ours(other).is_none());
        assert_eq!(driver(None).severity, Severity::Fine);
    }

    /// The Go driver's chart renders its own variables and then those of `controller.env`.
    #[test]
    fn variables_that_a_release_has_twice_are_named() {
        let secret = |key: &str| json!({"secretKeyRef": {"name": "aws-secret", "key": key, "optional": true}});
        let own = json!([
            {"name": "CSI_ENDPOINT", "value": "unix:///var/lib/csi/sockets/pluginproxy/csi.sock"},
            {"name": "AWS_REGION", "value": "eu-west-1"},
            {"name": "AWS_ACCESS_KEY_ID", "valueFrom": secret("key_id")},
            {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": secret("access_key")},
        ]);
        let given = json!([
            {"name": "AWS_ACCESS_KEY_ID", "value": "AKIAIOSFODNN7EXAMPLE"},
            {"name": "AWS_SECRET_ACCESS_KEY", "value": "secret"},
            {"name": "HTTP_TIMEOUT", "value": "5"},
        ]);
        let rendered = |more: &Value, annotations: Value| {
            let env: Vec<_> =
                [&own, more].into_iter().filter_map(Value::as_array).flatten().collect();
            let containers = json!([{"name": "ebs-plugin", "env": env}, {"name": "csi-attacher"}]);
            let mut object = serde_json::to_value(deployment(
                "ebs-csi-controller",
                json!({}),
                annotations,
                "helm",
            ))
            .unwrap();
            object["spec"] =
                json!({"selector": {}, "template": {"spec": {"containers": containers}}});
            serde_json::from_value::<Deployment>(object).unwrap()
        };
        let helm = json!({RELEASE_NAME: "ebs", RELEASE_NAMESPACE: "kube-system"});
        let found = deployments(&[rendered(&given, helm.clone())]);
        assert_eq!(found.len(), 2, "{found:?}");
        let expected =
            "more than once: ebs-plugin AWS_ACCESS_KEY_ID,ebs-plugin AWS_SECRET_ACCESS_KEY";
        assert!(found[1].says.ends_with(expected), "{found:?}");
        assert!(found[1].next.contains("once more"), "{found:?}");
        let none = json!([]);
        assert_eq!(deployments(&[rendered(&none, helm)]).len(), 1);
        // Nothing is merged with what somebody else applied.
        assert_eq!(deployments(&[rendered(&given, json!({}))]).len(), 1);
    }
}
