//! The pages of the HTTP endpoint.
//!
//! The listener is bound before the process confines itself; afterwards the process can bind no
//! other.

use std::sync::Arc;

use ebs_csi_proto::http_endpoint::{Pages, StatusCode};
use ebs_csi_proto::metrics::Metrics as Registered;

use crate::facts::live_facts::LiveFacts;
use crate::helper::Helper;
use crate::metrics::Metrics;
use crate::node;
use crate::registration::RegistrationState;

mod held_page;
pub(crate) mod log_page;
mod nvme_metrics;

pub use nvme_metrics::{Collection, VolumeStatistics};

/// The sources of the pages.
#[derive(Debug)]
pub(crate) struct PageSources {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) helper: Arc<Helper>,
    pub(crate) collection: Arc<Collection>,
    pub(crate) registration_state: Arc<RegistrationState>,
    pub(crate) facts: Arc<LiveFacts>,
    /// The uid of the agent's pod; empty when the agent was not told.
    pub(crate) pod: String,
    /// The kernel's id of this boot.
    pub(crate) boot: String,
}

impl Pages for PageSources {
    async fn metrics(&self) -> Result<String, StatusCode> {
        // Collecting asks the helper for its inventory, which also updates the counters.
        self.collection.refresh().await;
        Ok(self.metrics.page())
    }

    async fn ready(&self) -> Result<(), String> {
        node::ready(&self.helper, &self.registration_state).await
    }

    async fn other(&self, path: &str, query: &str) -> Option<(StatusCode, String)> {
        if path != held_page::PATH {
            return None;
        }
        Some(self.held(query).await)
    }
}

/// Creates the metrics of the process, those of its volumes among them.
pub(crate) fn metrics(
    all: Registered,
    policy: &str,
    landlock: &str,
    statistics: Arc<VolumeStatistics>,
) -> Metrics {
    let facts =
        [("version", env!("CARGO_PKG_VERSION")), ("policy", policy), ("landlock", landlock)];
    let facts = facts.map(|(label, value)| (label, value.to_owned()));
    let mut metrics = Metrics::new(all, facts.to_vec());
    metrics.register_collector(Box::new(statistics));
    metrics
}

/// Returns a page on which each metric has a sample.
pub fn example_page() -> String {
    metrics(Registered::new(true), "", "", Arc::new(VolumeStatistics::example())).page()
}
