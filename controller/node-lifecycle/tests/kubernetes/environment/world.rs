//! Creates volumes, pods and attachments, and waits for conditions.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ebs_csi_proto::DRIVER_NAME;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::environment::control_plane::ControlPlane;
use crate::environment::driver::Driver;
use crate::environment::nodes::Nodes;

pub(crate) struct World<'a> {
    pub(crate) admin: Client,
    pub(crate) nodes: Nodes,
    pub(crate) driver: &'a Driver,
    pub(crate) plane: &'a ControlPlane,
    /// The number of instances that scenarios have created for themselves.
    pub(crate) made: AtomicUsize,
}

/// The modes of a volume with a file system, for one node.
pub(crate) const ONE_WRITER: (&str, &str) = ("ReadWriteOnce", "Filesystem");

pub(crate) type TestResult<T = ()> = Result<T, Box<dyn Error>>;

/// The time limit of every wait: generous, for busy machines; only a failing wait takes this long.
const WAIT_LIMIT: Duration = Duration::from_secs(600);

pub(crate) async fn wait_until<F, A>(what: &str, mut look: F) -> TestResult
where
    F: FnMut() -> A,
    A: Future<Output = TestResult<bool>>,
{
    let started = Instant::now();
    loop {
        match look().await {
            Ok(true) => return Ok(()),
            _ if started.elapsed() < WAIT_LIMIT => {}
            Ok(false) => return Err(format!("{what}: not within {WAIT_LIMIT:?}").into()),
            Err(why) => return Err(format!("{what}: {why}").into()),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub(crate) fn ensure(holds: bool, what: &str) -> TestResult {
    if holds { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> TestResult<K>
where
    K: Clone + Debug + DeserializeOwned + serde::Serialize,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

pub(crate) async fn patch<K>(api: &Api<K>, name: &str, patch: Value) -> TestResult
where
    K: Clone + Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
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

    /// Returns node-lifecycle's Lease, in its namespace.
    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), "kube-system")
    }

    /// Creates a Ready node of that name on an instance of its own. Returns the instance's id.
    pub(crate) async fn node(&self, name: &str) -> TestResult<String> {
        let instance = self.instance(&json!({}))?;
        self.nodes.create(name, &instance, "us-east-1a").await?;
        Ok(instance)
    }

    /// Creates an instance; `more` describes it as in the simulator's scenario file.
    pub(crate) fn instance(&self, more: &Value) -> TestResult<String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let id = format!("i-{:017x}", 0xa000 + number);
        self.driver.add_instance(&id, more)?;
        Ok(id)
    }

    /// Creates a volume in EC2, and a claim of that name that is bound to the volume. Returns the
    /// volume's id.
    pub(crate) async fn volume(&self, name: &str) -> TestResult<String> {
        let handle = self.driver.volume(name).await?;
        self.bound(name, (DRIVER_NAME, &handle), ONE_WRITER).await?;
        Ok(handle)
    }

    /// Creates a claim of that name, bound to a driver's volume, with that access mode and volume
    /// mode.
    pub(crate) async fn bound(
        &self,
        name: &str,
        (driver, handle): (&str, &str),
        (access, kind): (&str, &str),
    ) -> TestResult {
        let capacity = json!({"storage": "1Gi"});
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        let volume = json!({
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
            "spec": {"capacity": capacity, "accessModes": [access], "volumeMode": kind, "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "default", "name": name},
                "csi": {"driver": driver, "volumeHandle": handle, "fsType": (kind == "Filesystem").then_some("ext4")}},
        });
        create(&volumes, volume).await?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.admin.clone(), "default");
        let claim = json!({
            "metadata": {"name": name},
            "spec": {"accessModes": [access], "volumeMode": kind, "storageClassName": "", "volumeName": name, "resources": {"requests": capacity}},
        });
        create(&claims, claim).await?;
        wait_until(&format!("{name} is bound"), || async {
            let phase = claims.get(name).await?.status.and_then(|status| status.phase);
            Ok(phase.as_deref() == Some("Bound"))
        })
        .await
    }

    /// Creates a pod with these claims on a node, without waiting for its volumes.
    pub(crate) async fn add_pod(&self, name: &str, node: &str, claims: &[&str]) -> TestResult {
        self.add_tolerant_pod(name, node, claims, json!([])).await
    }

    /// Like [`World::add_pod`], with these tolerations.
    pub(crate) async fn add_tolerant_pod(
        &self,
        name: &str,
        node: &str,
        claims: &[&str],
        tolerations: Value,
    ) -> TestResult {
        let volume = |claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        let volumes: Vec<Value> = claims.iter().map(volume).collect();
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}], "volumes": volumes, "tolerations": tolerations},
        });
        create(&self.pods(), pod).await.map(drop)
    }

    /// Creates a pod with these claims on a node and waits until it runs, with its volumes attached
    /// and in use there.
    pub(crate) async fn run_pod(&self, name: &str, node: &str, claims: &[&str]) -> TestResult {
        self.add_pod(name, node, claims).await?;
        self.begin_pod(name, node, claims).await
    }

    /// Waits until the pod's volumes are attached, and starts the pod as its kubelet would.
    pub(crate) async fn begin_pod(&self, name: &str, node: &str, claims: &[&str]) -> TestResult {
        for claim in claims {
            wait_until(&format!("{claim} is attached to {node}"), || async {
                let status = self.attachment(claim, node).await?.and_then(|it| it.status);
                Ok(status.is_some_and(|status| status.attached))
            })
            .await?;
        }
        let running = json!({"status": {"phase": "Running", "containerStatuses": [
            {"name": "main", "image": "none", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]}});
        let how = PatchParams::default();
        self.pods().patch_status(name, &how, &Patch::Strategic(running)).await?;
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        let mut handles = Vec::new();
        for claim in claims {
            let csi = volumes.get(claim).await?.spec.and_then(|spec| spec.csi);
            handles.push(csi.ok_or("no CSI volume")?.volume_handle);
        }
        let handles: Vec<&str> = handles.iter().map(String::as_str).collect();
        self.nodes.in_use(node, &handles).await
    }

    pub(crate) async fn attachment(
        &self,
        volume: &str,
        node: &str,
    ) -> TestResult<Option<VolumeAttachment>> {
        let all = self.attachments().list(&ListParams::default()).await?;
        Ok(all.into_iter().find(|attachment| {
            attachment.spec.node_name == node
                && attachment.spec.source.persistent_volume_name.as_deref() == Some(volume)
        }))
    }

    /// Returns a line for each attachment that is not simply attached.
    pub(crate) async fn attachment_report(&self) -> TestResult<String> {
        let mut report = format!("{} leads", self.leader().await?.unwrap_or_default());
        for attachment in self.attachments().list(&ListParams::default()).await? {
            let status = attachment.status.clone().unwrap_or_default();
            let deleting = attachment.metadata.deletion_timestamp.is_some();
            if status.attached && !deleting {
                continue;
            }
            let volume = attachment.spec.source.persistent_volume_name.unwrap_or_default();
            let errors = [status.attach_error, status.detach_error].into_iter().flatten();
            let errors: Vec<_> = errors.filter_map(|error| error.message).collect();
            let node = attachment.spec.node_name;
            report += &format!("\n{volume} at {node}, deleting: {deleting}, errors: {errors:?}");
        }
        Ok(report)
    }

    /// Creates the ConfigMap that stops failover, or deletes it.
    pub(crate) async fn kill_switch(&self, stop: bool) -> TestResult {
        let switches: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "kube-system");
        let name = "ebs-csi-node-lifecycle";
        if stop {
            let switch = json!({"metadata": {"name": name}, "data": {"stop": "true"}});
            create(&switches, switch).await?;
        } else {
            switches.delete(name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Removes a pod as its kubelet would.
    pub(crate) async fn end_pod(&self, name: &str) -> TestResult {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Makes a call as another user of the account. Returns EC2's answer.
    pub(crate) fn as_foreign(&self, action: &str, parameters: &Value) -> TestResult<String> {
        let call = json!({"action": action, "parameters": parameters});
        let answer = self.driver.ec2("POST", "/v1/as-foreign", &call)?;
        let body = answer["body"].as_str().unwrap_or_default();
        match answer["status"] == 200 {
            true => Ok(body.to_owned()),
            false => Err(format!("{action}: {body}").into()),
        }
    }

    pub(crate) async fn is_ready(&self, node: &str) -> TestResult<bool> {
        let status = self.all_nodes().get(node).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        Ok(conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"))
    }

    pub(crate) async fn wait_until_not_ready(&self, node: &str) -> TestResult {
        let what = format!("{node} is not Ready");
        wait_until(&what, || async { Ok(!self.is_ready(node).await?) }).await
    }

    /// Returns the notes of the events of that reason about a node, pod or attachment.
    pub(crate) async fn events(&self, name: &str, reason: &str) -> TestResult<Vec<String>> {
        let events: Api<Event> = Api::all(self.admin.clone());
        let about = events.list(&ListParams::default()).await?.into_iter().filter(|event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name)
        });
        Ok(about.map(|event| event.note.unwrap_or_default()).collect())
    }

    pub(crate) async fn wait_for_event(&self, name: &str, reason: &str) -> TestResult {
        wait_until(&format!("the event {reason} about {name}"), || async {
            Ok(!self.events(name, reason).await?.is_empty())
        })
        .await
    }

    /// Waits until the metric whose line begins with `line` is at least 1 in all replicas together.
    pub(crate) async fn wait_for_metric(&self, line: &str) -> TestResult {
        wait_until(line, || async { Ok(self.driver.metric(line) >= 1.0) }).await
    }

    pub(crate) async fn leader(&self) -> TestResult<Option<String>> {
        let lease = self.leases().get_opt("ebs-csi-node-lifecycle").await?;
        Ok(lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity))
    }
}
