//! The same sequences where the node's agent says what the kernel holds. The agent here is a page
//! that this test serves, beside a pod with its label; it promises what the pod's annotation lists.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::stays;
use crate::environment::attached::Attached;
use crate::environment::world::{TestResult, World, create, ensure, wait_until};
use crate::scenarios::Scenario;
use crate::scenarios::manual_changes::taint;

const LEAVING: &str = "ebs.csi.aws.com/leaving";

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F53_volume_leaves_though_its_pod_returned", returned(world)),
        Scenario::new("F54_node_registers_anew_and_keeps_volume", registered(world)),
        Scenario::new("F55_kubelet_restarts_and_node_keeps_volume", restarted(world)),
    ]
}

struct FakeAgent {
    page: Arc<Page>,
    serving: JoinHandle<()>,
}

struct Page {
    pods: Api<Pod>,
    pod: String,
    uid: String,
    instance: String,
    /// Whether the node's kernel holds the volume.
    held: AtomicBool,
    questions: AtomicUsize,
}

impl FakeAgent {
    /// Adds the pod of an agent, whose kernel holds the volume.
    async fn on(at: &Attached<'_>) -> TestResult<Self> {
        let pods: Api<Pod> = Api::namespaced(at.world.admin.clone(), "kube-system");
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address: SocketAddr = listener.local_addr()?;
        let pod = format!("ebs-csi-node-{}", at.node);
        let labels = json!({"ebs.csi.aws.com/component": "node-agent",
            "ebs.csi.aws.com/held-port": address.port().to_string()});
        let owners = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ebs-csi-node",
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]);
        let object = json!({
            "metadata": {"name": pod, "labels": labels, "ownerReferences": owners},
            "spec": {"nodeName": at.node, "containers": [{"name": "ebs-plugin", "image": "x"}],
                "tolerations": [{"operator": "Exists"}]},
        });
        let uid = create(&pods, object).await?.uid().unwrap_or_default();
        let status = json!({"status": {"phase": "Running", "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}]}});
        let how = PatchParams::default();
        pods.patch_status(&pod, &how, &Patch::Merge(status)).await?;
        let instance = at.instance.clone();
        let (held, questions) = (AtomicBool::new(true), AtomicUsize::new(0));
        let page = Arc::new(Page { pods, pod, uid, instance, held, questions });
        let served = Arc::clone(&page);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = served.answer(stream).await;
            }
        });
        Ok(Self { page, serving })
    }

    fn release(&self) {
        self.page.held.store(false, Ordering::Relaxed);
    }

    /// Waits until Kubernetes has deleted the pod, as it does once its Node is gone.
    async fn wait_until_collected(self) -> TestResult {
        self.serving.abort();
        let Page { pods, pod, .. } = &*self.page;
        let what = format!("pod {pod} is gone");
        wait_until(&what, || async { Ok(pods.get_opt(pod).await?.is_none()) }).await
    }

    /// Waits until the request for the promise is gone, and removes the pod.
    async fn end(self) -> TestResult {
        wait_until("the promise is not requested any more", || async {
            Ok(self.page.leaving().await?.is_none())
        })
        .await?;
        self.serving.abort();
        let Page { pods, pod, questions, .. } = &*self.page;
        pods.delete(pod, &DeleteParams::default().grace_period(0)).await?;
        let asked = questions.load(Ordering::Relaxed);
        ensure(asked > 0, "the agent was asked")
    }
}

impl Page {
    async fn leaving(&self) -> TestResult<Option<String>> {
        Ok(self.pods.get(&self.pod).await?.annotations().get(LEAVING).cloned())
    }

    async fn answer(&self, mut stream: TcpStream) -> TestResult {
        let mut head = [0; 1024];
        let count = stream.read(&mut head).await?;
        let head = String::from_utf8_lossy(&head[..count]).into_owned();
        let query = head.split(['?', ' ']).nth(2).unwrap_or_default();
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).map_or("", |(_, value)| value).to_owned()
        };
        self.questions.fetch_add(1, Ordering::Relaxed);
        let held = self.held.load(Ordering::Relaxed);
        let wanted = format!("{}@{}", value("volume"), value("attached"));
        let leaving = self.leaving().await?.unwrap_or_default();
        let promised = !held && leaving.split(',').any(|word| word == wanted);
        let page = format!(
            "question {}\npod {}\ninstance {}\nboot boot-1\nstate {}\nby x\npromised {}\n",
            value("question"),
            self.uid,
            self.instance,
            if held { "held" } else { "free" },
            if promised { "yes" } else { "no" },
        );
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
        stream.write_all(answer.as_bytes()).await?;
        Ok(())
    }
}

/// A pod of a StatefulSet returns to its node before the late unpublish of its former run, and
/// kubelet lists the volume again: the node promises, and the volume is detached and attached anew.
async fn returned(world: &World<'_>) -> TestResult {
    let at = world.attached("f53-page", "f53-page").await?;
    let agent = FakeAgent::on(&at).await?;
    at.wait_until_mountable().await?;
    world.driver.fault(
        &json!({"id": "f53-page", "match": {"action": "DescribeInstances", "contains": at.instance},
        "fault": {"kind": "error", "code": "InternalError", "status": 500, "message": "x"}}),
    )?;
    at.end_pod().await?;
    agent.release();
    wait_until("its detach is requested", || async { Ok(!at.is_kept().await?) }).await?;
    world.add_pod(&at.pod, &at.node, &["f53-page"]).await?;
    world.nodes.in_use(&at.node, &[&at.handle]).await?;
    let since = at.attached_since()?;
    world.driver.remove_fault("f53-page")?;
    at.wait_until_detach_sent().await?;
    // The pod waits for it, so it is attached anew at once.
    wait_until("it is attached anew", || async { Ok(at.attached_since()? != since) }).await?;
    world.begin_pod(&at.pod, &at.node, &["f53-page"]).await?;
    let sent = world.driver.detach_requests(&at.handle)?;
    ensure(sent == [(at.instance.clone(), false)], &format!("one plain detach: {sent:?}"))?;
    agent.end().await?;
    at.end_pod().await
}

/// Kubelet registers anew with empty lists while the container writes on: the volume stays until
/// the kernel has released it.
async fn registered(world: &World<'_>) -> TestResult {
    let at = world.attached("f54-page", "f54-page").await?;
    let agent = FakeAgent::on(&at).await?;
    world.nodes.delete(&at.node).await?;
    at.wait_until_pod_gone().await?;
    agent.wait_until_collected().await?;
    at.delete_attachment().await?;
    world.nodes.create(&at.node, &at.instance, "us-east-1a").await?;
    let agent = FakeAgent::on(&at).await?;
    stays(&at).await?;
    agent.release();
    at.wait_until_detach_sent().await?;
    at.retry_until_detached().await?;
    agent.end().await
}

/// Kubelet starts anew in the same boot and leaves the volume out of its list, while the container
/// writes on: the volume stays until the kernel has released it.
async fn restarted(world: &World<'_>) -> TestResult {
    let at = world.attached("f55-page", "f55-page").await?;
    let agent = FakeAgent::on(&at).await?;
    at.fall_silent().await?;
    taint(world, &at.node).await?;
    at.wait_until_refused("in-use").await?;
    at.release().await?;
    at.boot("boot-1").await?;
    stays(&at).await?;
    agent.release();
    at.wait_until_detach_sent().await?;
    at.retry_until_detached().await?;
    agent.end().await
}
