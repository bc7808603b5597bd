//! Creates volumes, pods and attachments, and waits for conditions.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::environment::control_plane::ControlPlane;
use crate::environment::driver::Driver;
use crate::environment::nodes::Nodes;

/// What the scenarios share.
pub(crate) struct World<'a> {
    pub(crate) admin: Client,
    pub(crate) nodes: Nodes,
    pub(crate) driver: &'a Driver,
    pub(crate) plane: &'a ControlPlane,
    /// The kubeconfig file of node-lifecycle.
    pub(crate) kubeconfig: &'a Path,
    /// The number of instances that scenarios have created for themselves.
    pub(crate) made: AtomicUsize,
}

pub(crate) type Outcome = Result<(), String>;

fn parse_object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of that kind")
}

/// The time limit of every wait: generous, for busy machines; only a failing wait takes this long.
const WAIT_LIMIT: Duration = Duration::from_secs(600);

/// Waits until the condition holds.
pub(crate) async fn wait_until<F, A>(what: &str, mut look: F) -> Outcome
where
    F: FnMut() -> A,
    A: Future<Output = Result<bool, String>>,
{
    let begun = Instant::now();
    loop {
        let seen = look().await;
        match seen {
            Ok(true) => return Ok(()),
            _ if begun.elapsed() < WAIT_LIMIT => {}
            Ok(false) => return Err(format!("{what}: not within {WAIT_LIMIT:?}")),
            Err(why) => return Err(format!("{what}: {why}")),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns an error when the condition does not hold.
pub(crate) fn ensure(holds: bool, what: &str) -> Outcome {
    match holds {
        true => Ok(()),
        false => Err(format!("not so: {what}")),
    }
}

impl World<'_> {
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), "default")
    }

    pub(crate) fn all_nodes(&self) -> Api<Node> {
        Api::all(self.admin.clone())
    }

    pub(crate) fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.admin.clone())
    }

    /// Creates a Ready node of that name on an instance of its own. Returns the instance's id.
    pub(crate) async fn node(&self, name: &str) -> Result<String, String> {
        self.node_with(name, &json!({})).await
    }

    /// Like [`World::node`]; `more` describes the instance as in the simulator's scenario file.
    pub(crate) async fn node_with(&self, name: &str, more: &Value) -> Result<String, String> {
        let instance = self.instance(more)?;
        self.nodes.create(name, &instance, "us-east-1a").await?;
        Ok(instance)
    }

    /// Creates an instance without a Node object.
    pub(crate) fn instance(&self, more: &Value) -> Result<String, String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let id = format!("i-{:017x}", 0xa000 + number);
        self.driver.add_instance(&id, more)?;
        Ok(id)
    }

    /// Creates a volume in EC2, and a claim of that name that is bound to the volume. Returns the
    /// volume's id.
    pub(crate) async fn volume(&self, name: &str) -> Result<String, String> {
        let handle = self.driver.volume(name).await?;
        self.bound(name, "ebs.csi.aws.com", &handle).await?;
        Ok(handle)
    }

    /// Creates a claim of that name, bound to a volume of a driver that is not installed.
    pub(crate) async fn foreign_volume(&self, name: &str) -> Outcome {
        self.bound(name, "other.example.com", "x").await
    }

    async fn bound(&self, name: &str, driver: &str, handle: &str) -> Outcome {
        self.bound_in(name, driver, handle, ("ReadWriteOnce", "Filesystem")).await
    }

    /// Creates a claim of that name, bound to a volume of this driver, with that access mode and
    /// volume mode.
    pub(crate) async fn bound_as(&self, name: &str, handle: &str, modes: (&str, &str)) -> Outcome {
        self.bound_in(name, "ebs.csi.aws.com", handle, modes).await
    }

    async fn bound_in(
        &self,
        name: &str,
        driver: &str,
        handle: &str,
        (access, kind): (&str, &str),
    ) -> Outcome {
        let capacity = json!({"storage": "1Gi"});
        let volume: PersistentVolume = parse_object(json!({
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
            "spec": {"capacity": capacity, "accessModes": [access], "volumeMode": kind, "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "default", "name": name},
                "csi": {"driver": driver, "volumeHandle": handle, "fsType": (kind == "Filesystem").then_some("ext4")}},
        }));
        let claim: PersistentVolumeClaim = parse_object(json!({
            "metadata": {"name": name},
            "spec": {"accessModes": [access], "volumeMode": kind, "storageClassName": "", "volumeName": name, "resources": {"requests": capacity}},
        }));
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.admin.clone(), "default");
        let how = PostParams::default();
        volumes.create(&how, &volume).await.map_err(|e| e.to_string())?;
        claims.create(&how, &claim).await.map_err(|e| e.to_string())?;
        wait_until(&format!("{name} is bound"), || async {
            let claim = claims.get(name).await.map_err(|e| e.to_string())?;
            let phase = claim.status.and_then(|status| status.phase);
            Ok(phase.as_deref() == Some("Bound"))
        })
        .await
    }

    /// Creates a pod with these claims on a node, without waiting for its volumes.
    pub(crate) async fn add_pod(&self, name: &str, node: &str, claims: &[&str]) -> Outcome {
        self.add_tolerant_pod(name, node, claims, json!([])).await
    }

    /// Like [`World::add_pod`], with these tolerations.
    pub(crate) async fn add_tolerant_pod(
        &self,
        name: &str,
        node: &str,
        claims: &[&str],
        tolerations: Value,
    ) -> Outcome {
        let volumes: Vec<Value> = claims
            .iter()
            .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        let pod: Pod = parse_object(json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}], "volumes": volumes, "tolerations": tolerations},
        }));
        let created = self.pods().create(&PostParams::default(), &pod).await;
        created.map(drop).map_err(|e| format!("pod {name}: {e}"))
    }

    /// Creates a pod with these claims on a node and waits until it runs, with its volumes attached
    /// and in use there.
    pub(crate) async fn run_pod(&self, name: &str, node: &str, claims: &[&str]) -> Outcome {
        self.add_pod(name, node, claims).await?;
        self.begin_pod(name, node, claims).await
    }

    /// Waits until the pod's volumes are attached, and starts the pod as its kubelet would.
    pub(crate) async fn begin_pod(&self, name: &str, node: &str, claims: &[&str]) -> Outcome {
        for claim in claims {
            wait_until(&format!("{claim} is attached to {node}"), || async {
                let attachment = self.attachment(claim, node).await?;
                let status = attachment.and_then(|attachment| attachment.status);
                Ok(status.is_some_and(|status| status.attached))
            })
            .await?;
        }
        let running = json!({"status": {"phase": "Running", "containerStatuses": [
            {"name": "main", "image": "none", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]}});
        let how = PatchParams::default();
        let patched = self.pods().patch_status(name, &how, &Patch::Strategic(running)).await;
        patched.map_err(|e| e.to_string())?;
        let mut handles = Vec::new();
        for claim in claims {
            handles.push(self.handle(claim).await?);
        }
        let handles: Vec<&str> = handles.iter().map(String::as_str).collect();
        self.nodes.in_use(node, &handles).await
    }

    async fn handle(&self, volume: &str) -> Result<String, String> {
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        let volume = volumes.get(volume).await.map_err(|e| e.to_string())?;
        let csi = volume.spec.and_then(|spec| spec.csi);
        csi.map(|csi| csi.volume_handle).ok_or_else(|| "no CSI volume".to_owned())
    }

    /// Returns the attachment of a volume to a node.
    pub(crate) async fn attachment(
        &self,
        volume: &str,
        node: &str,
    ) -> Result<Option<VolumeAttachment>, String> {
        let all = self.attachments().list(&ListParams::default()).await;
        let all = all.map_err(|e| e.to_string())?;
        Ok(all.into_iter().find(|attachment| {
            attachment.spec.node_name == node
                && attachment.spec.source.persistent_volume_name.as_deref() == Some(volume)
        }))
    }

    /// Deletes the attachment, as a person with kubectl would.
    pub(crate) async fn delete_attachment(&self, volume: &str, node: &str) -> Outcome {
        let found = self.attachment(volume, node).await?.ok_or("no attachment")?;
        let how = DeleteParams::default();
        let deleted = self.attachments().delete(&found.name_any(), &how).await;
        deleted.map(drop).map_err(|e| e.to_string())
    }

    /// Changes the attachment, so that external-attacher processes it at once.
    pub(crate) async fn touch_attachment(&self, volume: &str, node: &str) -> Outcome {
        let Some(found) = self.attachment(volume, node).await? else {
            return Ok(());
        };
        let now = jiff::Timestamp::now();
        let patch = json!({"metadata": {"annotations": {"rig/touched": now.to_string()}}});
        let how = PatchParams::default();
        // The attachment may be deleted at this moment.
        let _ = self.attachments().patch(&found.name_any(), &how, &Patch::Merge(patch)).await;
        Ok(())
    }

    /// Sets a person's override order on the attachment.
    pub(crate) async fn break_glass(&self, volume: &str, node: &str, order: &str) -> Outcome {
        let found = self.attachment(volume, node).await?.ok_or("no attachment")?;
        let patch = json!({"metadata": {"annotations": {"ebs.csi.aws.com/break-glass": order}}});
        let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = self.attachments().patch(&found.name_any(), &how, &patch).await;
        patched.map(drop).map_err(|e| e.to_string())
    }

    /// Creates the ConfigMap that stops failover, or deletes it.
    pub(crate) async fn kill_switch(&self, stop: bool) -> Outcome {
        let switches: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "kube-system");
        let name = "ebs-csi-node-lifecycle";
        let done = if stop {
            let switch: ConfigMap =
                parse_object(json!({"metadata": {"name": name}, "data": {"stop": "true"}}));
            let made = switches.create(&PostParams::default(), &switch).await;
            made.map(drop)
        } else {
            let how = DeleteParams::default();
            switches.delete(name, &how).await.map(drop)
        };
        done.map_err(|e| e.to_string())
    }

    /// Removes a pod as its kubelet would.
    pub(crate) async fn end_pod(&self, name: &str) -> Outcome {
        let how = DeleteParams::default().grace_period(0);
        let deleted = self.pods().delete(name, &how).await;
        deleted.map(drop).map_err(|e| e.to_string())
    }

    /// Detaches the volume in EC2, bypassing the driver.
    pub(crate) fn detach_in_ec2(&self, volume: &str) -> Outcome {
        self.as_foreign("DetachVolume", &json!({"VolumeId": volume})).map(drop)
    }

    /// Makes a call as another user of the account. Returns EC2's answer.
    pub(crate) fn as_foreign(&self, action: &str, parameters: &Value) -> Result<String, String> {
        let call = json!({"action": action, "parameters": parameters});
        let answer = self.driver.ec2("POST", "/v1/as-foreign", &call)?;
        let body = answer["body"].as_str().unwrap_or_default().to_owned();
        match answer["status"] == 200 {
            true => Ok(body),
            false => Err(format!("{action}: {body}")),
        }
    }

    pub(crate) async fn uid(&self, pod: &str) -> Result<String, String> {
        let pod = self.pods().get(pod).await.map_err(|e| e.to_string())?;
        Ok(pod.uid().unwrap_or_default())
    }
}
