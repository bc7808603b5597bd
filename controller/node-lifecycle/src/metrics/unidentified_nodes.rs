//! Nodes whose instance cannot be determined: counted, and logged once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Metrics, as_gauge};
use crate::cluster::Tables;

/// Pause between two rounds. A node that joins is identified well within it.
const ROUND_PAUSE: Duration = Duration::from_secs(30);
const MAX_NAMES: usize = 10;

pub(crate) async fn run(tables: Arc<Tables>, metrics: Arc<Metrics>) {
    let (mut before, mut logged) = (BTreeSet::new(), BTreeSet::new());
    loop {
        if tables.identities_are_complete() {
            let now = tables.unidentified();
            // A node is logged only after two consecutive rounds, so that a node that is just
            // joining is not logged.
            let lasting = &now & &before;
            metrics.unidentified.set(as_gauge(lasting.len()));
            log_new(&(&lasting - &logged));
            logged = lasting;
            before = now;
        }
        tokio::time::sleep(ROUND_PAUSE).await;
    }
}

fn log_new(new: &BTreeSet<String>) {
    if new.is_empty() {
        return;
    }
    let named: Vec<&str> = new.iter().take(MAX_NAMES).map(String::as_str).collect();
    tracing::warn!(
        count = new.len(),
        nodes = named.join(","),
        "nodes have neither a providerID nor an entry of this driver in their CSINode: with --safe-detach=enforce nobody can speak for them; let the cloud controller manager set the providerID, or see that the driver's node pod runs there"
    );
}
