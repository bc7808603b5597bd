//! Tests the Lease: which replica leads, and what it may record.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_node_lifecycle::leader::{LEASE_NAME, Leader, RecordError};
use tokio::task::JoinHandle;

use crate::LONG;
use crate::api::{self, ApiServer, lock};

/// Waits, without a time limit, until this replica leads. Returns the task that renews the Lease.
async fn lead(leader: &Arc<Leader>) -> JoinHandle<()> {
    let election = tokio::spawn(Arc::clone(leader).run());
    while !leader.is_leader() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    election
}

/// A replica that leads again after another one cannot record a decision of its first term.
#[tokio::test]
async fn decision_from_former_term_is_not_recorded() {
    let api = ApiServer::of(0, 0);
    // The Lease does not expire during the test: the leader changes only when a replica resigns.
    let candidate =
        |name: &str| Leader::new(api::client(&api), "kube-system", name.to_owned(), LONG);
    let (one, two) = (candidate("one"), candidate("two"));
    assert!(lock(&api).lease.is_none());
    let first = lead(&one).await;
    let (_, decided_in) = one.journal().await;
    one.record(&["node-1"], decided_in).await.expect("it leads");
    first.abort();

    one.resign().await;
    let second = lead(&two).await;
    let (journal, term) = two.journal().await;
    assert!(journal.nodes(jiff::Timestamp::now()).any(|node| node == "node-1"));
    two.record(&["node-2"], term).await.expect("it leads");
    second.abort();
    two.resign().await;

    // The first replica leads again, and its round continues where it was.
    lead(&one).await.abort();
    let late = one.record(&["node-3"], decided_in).await;
    assert!(matches!(late, Err(RecordError::NotLeader)), "{late:?}");
    let (journal, term) = one.journal().await;
    assert!(journal.nodes(jiff::Timestamp::now()).any(|node| node == "node-2"));
    one.record(&["node-3"], term).await.expect("it leads");
    let lease = lock(&api).lease.clone().expect("a Lease");
    assert_eq!(lease["metadata"]["name"], LEASE_NAME);
}
