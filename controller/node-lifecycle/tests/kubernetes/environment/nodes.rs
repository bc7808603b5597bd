//! Nodes without a kubelet: objects, with leases that are renewed while the node is alive.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::environment::control_plane;
use crate::environment::world::{TestResult, create, patch};

/// The nodes that are alive.
#[derive(Clone)]
pub(crate) struct Nodes {
    client: Client,
    /// The name and the boot id of each.
    alive: Arc<Mutex<BTreeMap<String, String>>>,
}

/// A guard: the leases are renewed until it is dropped.
pub(crate) struct HeartbeatGuard {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for HeartbeatGuard {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // A panic of the thread was already reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Nodes {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, alive: Arc::default() }
    }

    pub(crate) async fn create(&self, name: &str, instance: &str, zone: &str) -> TestResult {
        let spec = json!({"providerID": format!("aws:///{zone}/{instance}")});
        let drivers = json!([{"name": "ebs.csi.aws.com", "nodeID": instance, "topologyKeys": ["topology.ebs.csi.aws.com/zone"]}]);
        self.create_objects(name, zone, spec, drivers).await
    }

    /// Creates a Ready node whose object does not name its instance, and on which no driver is
    /// registered.
    pub(crate) async fn create_without_identity(&self, name: &str) -> TestResult {
        self.create_objects(name, "us-east-1a", json!({}), json!([])).await
    }

    async fn create_objects(
        &self,
        name: &str,
        zone: &str,
        spec: Value,
        drivers: Value,
    ) -> TestResult {
        let labels = json!({"topology.kubernetes.io/zone": zone, "topology.ebs.csi.aws.com/zone": zone, "kubernetes.io/hostname": name});
        let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
        let node = json!({
            "metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": spec,
        });
        let uid = create(&self.api(), node).await?.uid();
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
        let csi_node = json!({
            "metadata": {"name": name, "ownerReferences": owner}, "spec": {"drivers": drivers},
        });
        create(&self.csi_nodes(), csi_node).await?;
        self.boot(name, "boot-1").await
    }

    /// Writes what kubelet writes when the driver registers on the node or, without an instance,
    /// unregisters.
    pub(crate) async fn register(&self, name: &str, instance: Option<&str>) -> TestResult {
        let ours = |instance: &str| {
            json!([{"name": "ebs.csi.aws.com", "nodeID": instance,
                "topologyKeys": ["topology.ebs.csi.aws.com/zone"], "allocatable": {"count": 25}}])
        };
        let drivers = instance.map_or(json!([]), ours);
        patch(&self.csi_nodes(), name, json!({"spec": {"drivers": drivers}})).await
    }

    /// Reports the node as Ready in that boot, and keeps its lease renewed, as kubelet would.
    pub(crate) async fn boot(&self, name: &str, boot: &str) -> TestResult {
        self.is_ready(name, boot).await?;
        self.renew(name).await;
        self.alive.lock().expect("not poisoned").insert(name.to_owned(), boot.to_owned());
        Ok(())
    }

    async fn is_ready(&self, name: &str, boot: &str) -> TestResult {
        let now = jiff::Timestamp::now();
        let status = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "nodeInfo": {"bootID": boot, "architecture": "amd64", "containerRuntimeVersion": "", "kernelVersion": "6.1.0", "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": ""},
        }});
        self.status(name, status).await
    }

    /// Reports again, as kubelets do, that nodes which are alive are Ready, where the control plane
    /// has taken them for lost: renewals may come late on a busy machine.
    async fn report_ready_again(&self) {
        let Ok(nodes) = self.api().list(&ListParams::default()).await else {
            return;
        };
        let lost = nodes.into_iter().filter(|node| {
            let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            !conditions.any(|c| c.type_ == "Ready" && c.status == "True")
        });
        let said = lost.map(|node| async move {
            let name = node.name_any();
            // The node may have been silenced since.
            let Some(boot) = self.alive_nodes().get(&name).cloned() else {
                return;
            };
            if let Err(error) = self.is_ready(&name, &boot).await {
                println!("{error}");
            }
        });
        let said = futures_util::stream::iter(said).buffer_unordered(8);
        said.collect::<Vec<()>>().await;
    }

    /// Sets the volumes that kubelet reports as in use.
    pub(crate) async fn in_use(&self, name: &str, volumes: &[&str]) -> TestResult {
        let unique = |volume| format!("kubernetes.io/csi/ebs.csi.aws.com^{volume}");
        let volumes: Vec<String> = volumes.iter().map(unique).collect();
        self.status(name, json!({"status": {"volumesInUse": volumes}})).await
    }

    async fn status(&self, name: &str, status: Value) -> TestResult {
        let patch = Patch::Strategic(status);
        self.api().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) fn stop_heartbeats(&self, name: &str) {
        self.alive.lock().expect("not poisoned").remove(name);
    }

    pub(crate) fn alive_nodes(&self) -> BTreeMap<String, String> {
        self.alive.lock().expect("not poisoned").clone()
    }

    pub(crate) async fn delete(&self, name: &str) -> TestResult {
        self.stop_heartbeats(name);
        self.api().delete(name, &DeleteParams::default()).await?;
        // The CSINode's owner is the Node object, but no garbage collector runs here.
        let _ = self.csi_nodes().delete(name, &DeleteParams::default()).await;
        Ok(())
    }

    /// Renews the leases of live nodes until the returned guard is dropped. It uses a thread of its
    /// own, so that no scenario can delay it.
    pub(crate) fn keep_alive(&self, kubeconfig: &Path) -> HeartbeatGuard {
        let (alive, kubeconfig) = (self.alive.clone(), kubeconfig.to_owned());
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let client = control_plane::client(&kubeconfig).await.expect("a client");
                let nodes = Self { client, alive };
                while !end.load(Ordering::Relaxed) {
                    let alive_nodes = nodes.alive_nodes();
                    let renewals = alive_nodes.keys().map(|name| nodes.renew(name));
                    let renewals = futures_util::stream::iter(renewals);
                    renewals.buffer_unordered(8).collect::<Vec<()>>().await;
                    nodes.report_ready_again().await;
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
            });
        });
        HeartbeatGuard { ended, thread: Some(thread) }
    }

    async fn renew(&self, name: &str) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(jiff::Timestamp::now())});
        let merge = Patch::Merge(json!({"spec": spec}));
        let renewed = match api.patch(name, &PatchParams::default(), &merge).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                create(&api, json!({"metadata": {"name": name}, "spec": spec})).await.map(drop)
            }
            renewed => renewed.map(drop).map_err(Into::into),
        };
        if let Err(error) = renewed {
            println!("the lease of {name}: {error}");
        }
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn csi_nodes(&self) -> Api<CSINode> {
        Api::all(self.client.clone())
    }
}
