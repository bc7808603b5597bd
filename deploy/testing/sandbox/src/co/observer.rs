//! Plays node-lifecycle: answers the controller's questions about Node objects on the SafeDetach
//! socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ebs_csi_proto::lock;
use ebs_csi_proto::safe_detach::safe_detach_client::SafeDetachClient;
use ebs_csi_proto::safe_detach::{Node, Report};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use super::{CoError, Result, channel};

const MOST: usize = 16;

/// Returns the SafeDetach socket that lies next to a controller's CSI socket, and the controller's
/// flags that serve it to the user `peer` in this mode.
pub fn safe_detach(controller_socket: &Path, mode: &str, peer: u32) -> (PathBuf, [String; 4]) {
    let socket = controller_socket.with_file_name("safe-detach.sock");
    let flags = [
        "--feature-gates=NonGracefulFailover=true".to_owned(),
        format!("--safe-detach={mode}"),
        format!("--safe-detach-endpoint=unix://{}", socket.display()),
        format!("--safe-detach-peers={peer}"),
    ];
    (socket, flags)
}

/// Answers the controller's questions until dropped.
#[derive(Debug)]
pub struct Observer {
    nodes: Arc<Mutex<BTreeMap<String, Node>>>,
    answering: JoinHandle<()>,
}

impl Observer {
    /// Connects to the controller's socket, without any known node.
    pub async fn start(socket: &Path) -> Result<Self> {
        let fail = |why: String| CoError::Own { what: "observing nodes".to_owned(), why };
        let (reports, sent) = mpsc::channel(MOST);
        let mut client = SafeDetachClient::new(channel(socket)?);
        let questions = client.observe(ReceiverStream::new(sent)).await;
        let mut questions = questions.map_err(|status| fail(status.to_string()))?.into_inner();
        let nodes = Arc::new(Mutex::new(BTreeMap::<String, Node>::new()));
        let known = Arc::clone(&nodes);
        let answering = tokio::spawn(async move {
            while let Ok(Some(question)) = questions.message().await {
                let node = {
                    let known = lock(&known);
                    known.get(&question.instance_id).cloned()
                };
                let report = Report { ask: question.ask, nodes: node.into_iter().collect() };
                if reports.send(report).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self { nodes, answering })
    }

    /// Sets the content of this instance's Node object from now on.
    pub fn set_node(&self, instance: &str, node: Node) {
        lock(&self.nodes).insert(instance.to_owned(), node);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.answering.abort();
    }
}
