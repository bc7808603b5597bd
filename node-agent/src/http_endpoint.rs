//! The pages of the HTTP endpoint.
//!
//! The listener is bound before the process confines itself; afterwards the process can bind no
//! other.

use std::sync::Arc;
use std::time::Instant;

use ebs_csi_proto::exposition::Page;
use ebs_csi_proto::http_endpoint::{Pages, StatusCode};

use crate::deadline::Deadline;
use crate::helper::Helper;
use crate::metrics::Metrics;
use crate::node::READY_TIMEOUT;
use crate::registration::RegistrationState;

mod log_page;
mod nvme_metrics;

pub use nvme_metrics::Collector;

/// The sources of the pages.
#[derive(Debug)]
pub(crate) struct PageSources {
    /// The counters.
    pub(crate) metrics: Arc<Metrics>,
    /// The mount-helper.
    pub(crate) helper: Arc<Helper>,
    /// The volumes' statistics.
    pub(crate) collector: Arc<Collector>,
    /// The state of the registration with kubelet.
    pub(crate) registration_state: Arc<RegistrationState>,
}

impl Pages for PageSources {
    async fn metrics(&self) -> Result<Page, StatusCode> {
        // Collecting asks the helper for its inventory, which also updates the counters.
        let volumes = self.collector.page().await;
        let mut page = self.metrics.page();
        page.push_str(&volumes);
        Ok(Page::Text(page))
    }

    async fn ready(&self) -> Result<(), String> {
        if let Some(fault) = self.registration_state.fault(Instant::now()) {
            return Err(fault);
        }
        let greeting = self.helper.greet(Deadline::after(READY_TIMEOUT)).await;
        greeting.map(drop).map_err(|error| error.to_string())
    }
}
