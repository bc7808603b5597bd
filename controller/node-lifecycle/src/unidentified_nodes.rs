//! Nodes whose instance cannot be determined: counted, and logged once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Tables;
use crate::metrics::Metrics;

/// Pause between two looks. A node that joins is identified well within it.
const EVERY: Duration = Duration::from_secs(30);
/// Most names in one line of the log.
const NAMED: usize = 10;

/// Looks for such nodes, for ever.
pub(crate) async fn run(tables: Arc<Tables>, metrics: Arc<Metrics>) {
    let (mut before, mut said) = (BTreeSet::new(), BTreeSet::new());
    loop {
        if tables.identities_are_complete() {
            let now: BTreeSet<String> = tables.unidentified().into_iter().collect();
            // A node must be in two consecutive looks, so that no node that is just joining is
            // named.
            let lasting: BTreeSet<String> = now.intersection(&before).cloned().collect();
            metrics.unidentified(lasting.len());
            say(lasting.difference(&said).cloned().collect());
            said = lasting;
            before = now;
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn say(new: Vec<String>) {
    if new.is_empty() {
        return;
    }
    let named: Vec<&str> = new.iter().take(NAMED).map(String::as_str).collect();
    tracing::warn!(
        count = new.len(),
        nodes = named.join(","),
        "nodes have neither a providerID nor an entry of this driver in their CSINode: with --safe-detach=enforce nobody can speak for them; let the cloud controller manager set the providerID, or see that the driver's node pod runs there"
    );
}
