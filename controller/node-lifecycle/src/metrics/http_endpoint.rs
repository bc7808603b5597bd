//! The pages of the HTTP endpoint.

use std::sync::Arc;

use ebs_csi_proto::exposition;
use ebs_csi_proto::http_endpoint::Pages;

use super::Metrics;

/// The sources of the pages.
#[derive(Clone, Debug)]
pub(crate) struct PageSources<R> {
    pub(crate) metrics: Arc<Metrics>,
    /// Returns the reason while the process is not ready.
    pub(crate) ready: R,
}

impl<R> Pages for PageSources<R>
where
    R: Fn() -> Result<(), &'static str> + Clone + Send + Sync + 'static,
{
    async fn metrics(&self) -> String {
        exposition::as_text(&self.metrics.page())
    }

    async fn ready(&self) -> Result<(), String> {
        (self.ready)().map_err(str::to_owned)
    }
}
