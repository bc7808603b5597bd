//! Tests the Lease with an API server of one object.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebs_csi_node_lifecycle::leader::{LEASE_NAME, Leader, RecordError};
use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use serde_json::json;

/// The one object, and its next resourceVersion.
#[derive(Default)]
struct Store {
    lease: Option<Lease>,
    version: u64,
}

impl Store {
    /// Answers as the API server does: an outdated version is a conflict.
    fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, Vec<u8>) {
        let failure = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "code": code, "reason": reason, "message": reason});
            (code, status.to_string().into_bytes())
        };
        let Ok(mut lease) = serde_json::from_slice::<Lease>(body) else {
            return match &self.lease {
                Some(lease) => (200, serde_json::to_vec(lease).expect("JSON")),
                None => failure(404, "NotFound"),
            };
        };
        let known = self.lease.as_ref().map(|l| &l.metadata.resource_version);
        let overtaken = known.is_some_and(|version| *version != lease.metadata.resource_version);
        if *method == Method::POST && self.lease.is_some() || overtaken {
            return failure(409, "Conflict");
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        (200, serde_json::to_vec(&lease).expect("JSON"))
    }
}

fn client(store: Arc<Mutex<Store>>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let store = Arc::clone(&store);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            let (code, text) = store.answer(&parts.method, &body);
            let response = Response::builder().status(code).body(Body::from(text));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    kube::Client::new(service, "kube-system")
}

/// Waits, without a time limit, until this replica leads.
async fn leads(leader: &Leader) {
    while !leader.is_leader() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A replica that leads again after another one cannot record a decision of its first term.
#[tokio::test]
async fn decision_from_former_term_is_not_recorded() {
    let store = Arc::new(Mutex::new(Store::default()));
    // The lease does not expire during the test: the leader changes only when a replica resigns.
    let candidate = |name: &str| {
        let client = client(Arc::clone(&store));
        Leader::new(client, "kube-system", name.to_owned(), Duration::from_secs(300))
    };
    let (one, two) = (candidate("one"), candidate("two"));
    assert!(store.lock().expect("the store").lease.is_none());
    let first = tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.run().await }
    });
    leads(&one).await;
    let (_, decided_in) = one.journal().await;
    one.record(&["node-1"], decided_in).await.expect("it leads");
    first.abort();

    one.resign().await;
    let second = tokio::spawn({
        let two = Arc::clone(&two);
        async move { two.run().await }
    });
    leads(&two).await;
    let (journal, term) = two.journal().await;
    assert!(journal.nodes(jiff::Timestamp::now()).any(|node| node == "node-1"));
    two.record(&["node-2"], term).await.expect("it leads");
    second.abort();
    two.resign().await;

    // The first replica leads again, and its round continues where it was.
    let third = tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.run().await }
    });
    leads(&one).await;
    third.abort();
    let late = one.record(&["node-3"], decided_in).await;
    assert!(matches!(late, Err(RecordError::NotLeader)), "{late:?}");
    let (journal, term) = one.journal().await;
    assert!(journal.nodes(jiff::Timestamp::now()).any(|node| node == "node-2"));
    one.record(&["node-3"], term).await.expect("it leads");
    let lease = store.lock().expect("the store").lease.clone();
    assert_eq!(lease.and_then(|lease| lease.metadata.name).as_deref(), Some(LEASE_NAME));
}
