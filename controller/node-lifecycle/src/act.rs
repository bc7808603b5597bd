//! The acts in Kubernetes. Every call names exactly the object that was read, and fails when the
//! object has been replaced.

use ebs_csi_safe_detach::lifecycle::{Intent, ObjectVersion, TaintedBoot};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{
    OUT_OF_SERVICE, OUT_OF_SERVICE_VALUE, RETRY_ANNOTATION, TAINTED_BOOT, is_own_taint,
};
use crate::context::Context;

/// The label of what failover deletes. The admission policy lets failover delete nothing else, and
/// compares only objects with this label with their nodes.
const FAILED_OVER: &str = "ebs.csi.aws.com/failed-over";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActResult {
    /// It was done.
    Done,
    /// The object was replaced, has changed, or is gone: the next round decides again.
    Conflict,
}

impl ActResult {
    /// Interprets the answer to a request that names exactly the object that was read.
    pub(crate) fn of<T>(answer: Result<T, kube::Error>) -> Result<Self, kube::Error> {
        match answer {
            Ok(_) => Ok(Self::Done),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Self::Conflict),
            Err(error) => Err(error),
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict => "overtaken",
        }
    }
}

const fn intent_label(intent: &Intent) -> &'static str {
    match intent {
        Intent::AddTaint(_) => "add-taint",
        Intent::RemoveTaint => "remove-taint",
        Intent::DeletePod(_) => "delete-pod",
        Intent::DeleteAttachment(_) => "delete-attachment",
        Intent::RetryDetach(_) => "nudge",
    }
}

impl Context {
    /// Carries out one intent, counts it, and logs it with the message `why`. `None`: it failed.
    pub(crate) async fn perform(
        &self,
        node: Option<&str>,
        object: Option<&core::Node>,
        intent: &Intent,
        why: &'static str,
    ) -> Option<ActResult> {
        let act = intent_label(intent);
        let outcome = perform(&self.client, object, intent).await;
        let result = outcome.as_ref().map_or("failed", |done| done.label());
        self.metrics.count_act(act, result);
        match &outcome {
            Ok(_) => tracing::info!(node, act, result, ?intent, "{why}"),
            Err(error) => tracing::warn!(node, act, %error, ?intent, "{why}"),
        }
        outcome.ok()
    }
}

/// Carries out one intent. `node` is the Node object that the intent is based on, where there is
/// one.
async fn perform(
    client: &Client,
    node: Option<&core::Node>,
    intent: &Intent,
) -> Result<ActResult, kube::Error> {
    let outcome = match (intent, node) {
        (Intent::AddTaint(tainted), Some(node)) => patch_taint(client, node, Some(tainted)).await,
        (Intent::RemoveTaint, Some(node)) => patch_taint(client, node, None).await,
        // A step never has these intents for a node that is gone.
        (Intent::AddTaint(_) | Intent::RemoveTaint, None) => return Ok(ActResult::Conflict),
        (Intent::DeletePod(pod), _) => delete_pod(client, pod).await,
        (Intent::DeleteAttachment(read), _) => {
            let api: Api<VolumeAttachment> = Api::all(client.clone());
            // An attachment that was not attached when it was read, and is by now, is in use by its
            // new user.
            let patch = Patch::Merge(json!({"metadata": failed_over(read)}));
            match api.patch_metadata(&read.name, &PatchParams::default(), &patch).await {
                Ok(labelled) => delete(&api, read, labelled.resource_version(), None).await,
                Err(error) => Err(error),
            }
        }
        (Intent::RetryDetach(read), _) => {
            let api: Api<VolumeAttachment> = Api::all(client.clone());
            // The time makes the patch a change, even where an earlier annotation exists:
            // external-attacher does not queue an unchanged object.
            let now = jiff::Timestamp::now().to_string();
            let metadata = json!({"uid": read.uid, "annotations": {RETRY_ANNOTATION: now}});
            let patch = Patch::Merge(json!({"metadata": metadata}));
            api.patch_metadata(&read.name, &PatchParams::default(), &patch).await.map(drop)
        }
    };
    ActResult::of(outcome)
}

/// Returns the metadata that labels the object, in the version that was read.
fn failed_over(read: &ObjectVersion) -> Value {
    let labels = json!({FAILED_OVER: "true"});
    json!({"uid": read.uid, "resourceVersion": read.version, "labels": labels})
}

/// Sets or removes the driver's taint; all other taints stay as they were read. A Node that has
/// changed since is not modified.
async fn patch_taint(
    client: &Client,
    node: &core::Node,
    tainted: Option<&TaintedBoot>,
) -> Result<(), kube::Error> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    let mut taints: Vec<core::Taint> = taints.unwrap_or_default();
    taints.retain(|taint| !is_own_taint(taint));
    if tainted.is_some() {
        taints.push(core::Taint {
            key: OUT_OF_SERVICE.to_owned(),
            value: Some(OUT_OF_SERVICE_VALUE.to_owned()),
            effect: "NoExecute".to_owned(),
            time_added: Some(Time(jiff::Timestamp::now())),
        });
    }
    let annotation = tainted.map(|TaintedBoot { instance, launched, boot }| {
        json!({"instance": instance, "launched": launched, "boot": boot}).to_string()
    });
    let patch = json!({
        "metadata": {
            "uid": node.uid(),
            "resourceVersion": node.resource_version(),
            "annotations": {TAINTED_BOOT: annotation},
        },
        "spec": {"taints": taints},
    });
    let api: Api<core::Node> = Api::all(client.clone());
    let parameters = PatchParams::default();
    api.patch(&node.name_any(), &parameters, &Patch::Merge(patch)).await.map(drop)
}

/// Deletes a pod as Kubernetes' own pod garbage collector does: first sets the phase Failed, so
/// that its owner counts it as disrupted, then deletes it at once.
async fn delete_pod(client: &Client, read: &ObjectVersion) -> Result<(), kube::Error> {
    let api: Api<core::Pod> = Api::namespaced(client.clone(), &read.namespace);
    let patch = json!({
        "metadata": failed_over(read),
        "status": {
            "phase": "Failed",
            "conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByEBSNodeLifecycle",
                "message": "its node is down and its volumes are proved free",
                "lastTransitionTime": jiff::Timestamp::now(),
            }],
        },
    });
    let parameters = PatchParams::default();
    let failed = api.patch_status(&read.name, &parameters, &Patch::Strategic(patch)).await?;
    delete(&api, read, failed.resource_version(), Some(0)).await
}

/// Deletes the object if it is still the one that was read, in this version.
async fn delete<K>(
    api: &Api<K>,
    read: &ObjectVersion,
    version: Option<String>,
    grace_period: Option<u32>,
) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let preconditions = Preconditions { uid: Some(read.uid.clone()), resource_version: version };
    let parameters = DeleteParams {
        grace_period_seconds: grace_period,
        ..DeleteParams::default().preconditions(preconditions)
    };
    api.delete(&read.name, &parameters).await.map(drop)
}
