//! Asks a node's node-agent what the kernel there holds: `/held` of its HTTP endpoint.
//!
//! The answer needs no secret: it counts only if it is of the pod that the API server names, and of
//! the boot that wrote the Node object. A node can lie about its own volumes alone.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ebs_csi_proto::safe_detach::Agent;
use ebs_csi_proto::safe_detach::agent::State;
use http::header::{CONNECTION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::BoxError;

use crate::cluster::{AgentPodRow, Table};

/// The agent answers within this time, or its answer is not known. The look itself takes
/// milliseconds, and half a second where something has claimed the disk.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often a page is looked for before the first is seen.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Most bytes of an answer.
const LIMIT: usize = 4096;

/// Asks node-agents. Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct AgentPages {
    /// The agents' pods, by namespace.
    pods: Vec<Arc<Table<AgentPodRow>>>,
    /// Whether an agent with a page was ever seen.
    page_seen: Arc<AtomicBool>,
    questions: Arc<AtomicU64>,
}

/// The only agent of a node.
#[derive(Debug)]
pub(super) enum NodeAgent {
    /// There is none, or more than one.
    Unknown,
    /// Its pod lacks the label of the page, or there is no pod with that label in the cluster.
    WithoutPage,
    /// Its pod, and the address of its page.
    WithPage(Arc<AgentPodRow>, SocketAddr),
}

impl AgentPages {
    pub(super) fn new(pods: Vec<Arc<Table<AgentPodRow>>>) -> Self {
        // Numbers of an earlier process of this replica are not given again.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let first = u64::try_from(now.as_nanos()).unwrap_or_default();
        Self { pods, page_seen: Arc::default(), questions: Arc::new(AtomicU64::new(first)) }
    }

    pub(super) fn agent_of(&self, node: &str) -> NodeAgent {
        if !self.pods.iter().all(|table| table.is_complete()) {
            return NodeAgent::Unknown;
        }
        let page_seen = self.was_page_seen();
        let of_node = self.pods.iter().flat_map(|table| table.filter(|pod| pod.node() == node));
        let pods: Vec<_> = of_node.collect();
        let pod = match pods.as_slice() {
            [pod] => pod,
            // Before the first agent with a page, another driver's agents may run. After it, an
            // agent that is missing is only away, even when all are.
            [] if !page_seen => return NodeAgent::WithoutPage,
            _ => return NodeAgent::Unknown,
        };
        if pod.held_port().is_empty() {
            return NodeAgent::WithoutPage;
        }
        let address = (pod.ip().parse::<IpAddr>(), pod.held_port().parse::<u16>());
        match address {
            (Ok(ip), Ok(port)) => NodeAgent::WithPage(Arc::clone(pod), SocketAddr::new(ip, port)),
            _ => NodeAgent::Unknown,
        }
    }

    pub(super) async fn wait_for_page(self) {
        while !self.was_page_seen() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn was_page_seen(&self) -> bool {
        let has_page = |table: &Arc<Table<AgentPodRow>>| {
            !table.filter(|pod| !pod.held_port().is_empty()).is_empty()
        };
        if !self.page_seen.load(Ordering::Relaxed) && self.pods.iter().any(has_page) {
            self.page_seen.store(true, Ordering::Relaxed);
        }
        self.page_seen.load(Ordering::Relaxed)
    }

    /// Asks the agent of a node about one attachment. An agent that does not answer, or answers
    /// another question, gives the state `Unspecified`.
    pub(super) async fn ask(&self, agent: &NodeAgent, volume: &str, attached_at: &str) -> Agent {
        let (pod, address) = match agent {
            NodeAgent::Unknown => return Agent::default(),
            NodeAgent::WithoutPage => {
                return Agent { state: State::WithoutPage.into(), ..Agent::default() };
            }
            NodeAgent::WithPage(pod, address) => (pod, *address),
        };
        let question = self.questions.fetch_add(1, Ordering::Relaxed);
        let path = format!("/held?volume={volume}&attached={attached_at}&question={question}");
        let answer = match tokio::time::timeout(TIMEOUT, fetch(address, &path)).await {
            Ok(Ok(page)) => parse(&page, question, pod.uid())
                .ok_or_else(|| "its page is not an answer of this pod".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer in time".to_owned()),
        };
        answer.unwrap_or_else(|why| {
            tracing::info!(
                node = pod.node(),
                volume.id = volume,
                why,
                "the node-agent does not say who holds the volume"
            );
            Agent::default()
        })
    }
}

/// Returns the body of a page with status 200.
async fn fetch(address: SocketAddr, path: &str) -> Result<String, BoxError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(HOST, address.to_string());
    let request = request.header(CONNECTION, "close").body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(response.status().to_string().into());
    }
    let body = Limited::new(response.into_body(), LIMIT).collect().await?;
    Ok(String::from_utf8(body.to_bytes().to_vec())?)
}

/// Parses a page; `None` when it answers another question, or is of another pod.
fn parse(page: &str, question: u64, pod: &str) -> Option<Agent> {
    let mut words: HashMap<&str, &str> = HashMap::new();
    for line in page.lines() {
        let (word, value) = line.split_once(' ')?;
        if words.insert(word, value).is_some() {
            return None;
        }
    }
    let is_answer = *words.get("question")? == question.to_string() && *words.get("pod")? == pod;
    if !is_answer || pod.is_empty() {
        return None;
    }
    let state = match *words.get("state")? {
        "held" => State::Held,
        "busy" => State::Busy,
        "free" => State::Free,
        "no-disk" => State::NoDisk,
        _ => return None,
    };
    let promised = match *words.get("promised")? {
        "yes" => true,
        "no" => false,
        _ => return None,
    };
    Some(Agent {
        state: state.into(),
        instance_id: (*words.get("instance")?).to_owned(),
        boot_id: (*words.get("boot")?).to_owned(),
        promised,
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PAGE: &str =
        "question 7\npod p\ninstance i-1\nboot b\nstate free\nby nothing\npromised yes\n";

    #[test]
    fn page_counts_only_for_own_question_and_pod() {
        let agent = parse(PAGE, 7, "p").expect("an answer");
        assert_eq!(agent.state(), State::Free);
        assert_eq!((agent.instance_id.as_str(), agent.boot_id.as_str()), ("i-1", "b"));
        assert!(agent.promised);
        assert!(parse(PAGE, 8, "p").is_none() && parse(PAGE, 7, "q").is_none());
        for (word, other) in [
            ("question 7", "question 07"),
            ("pod p\n", "pod \n"),
            ("state free", "state gone"),
            ("promised yes", "promised maybe"),
            ("boot b\n", ""),
            ("instance i-1", "instance"),
            ("by nothing", "state held"),
        ] {
            assert!(parse(&PAGE.replace(word, other), 7, "p").is_none(), "{other}");
        }
        let nobody = PAGE.replace("pod p", "pod ");
        assert!(parse(&nobody, 7, "").is_none(), "an agent that does not know its pod");
    }

    /// Serves one answer, and returns the page that is fetched, or the error.
    async fn fetched(answer: &'static [u8]) -> Result<String, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut head = [0; 512];
            let count = stream.read(&mut head).await.expect("a request");
            assert!(head[..count].starts_with(b"GET /held?x HTTP/1.1\r\n"));
            let _ = stream.write_all(answer).await;
        });
        let page = fetch(address, "/held?x").await.map_err(|error| error.to_string());
        serving.await.expect("served");
        page
    }

    #[tokio::test]
    async fn only_whole_page_with_status_200_is_fetched() {
        let good = fetched(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na b").await;
        assert_eq!(good.as_deref(), Ok("a b"));
        for bad in [
            &b"HTTP/1.1 503 Service Unavailable\r\n\r\nstate free\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nstate",
            b"HTTP/1.1 200 OK\r\n",
            b"\xff\xfe",
            b"",
        ] {
            assert!(fetched(bad).await.is_err(), "{bad:?}");
        }
    }
}
