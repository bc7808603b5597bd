//! The pages of the HTTP endpoint.

use std::sync::Arc;

use ebs_csi_proto::http_endpoint::{Pages, StatusCode};

use super::Metrics;

/// The sources of the pages.
#[derive(Debug)]
pub(crate) struct PageSources<R> {
    pub(crate) metrics: Arc<Metrics>,
    /// Returns the reason while the process is not ready.
    pub(crate) ready: R,
}

impl<R> Pages for PageSources<R>
where
    R: Fn() -> Result<(), &'static str> + Send + Sync + 'static,
{
    async fn metrics(&self) -> Result<String, StatusCode> {
        Ok(self.metrics.page())
    }

    async fn ready(&self) -> Result<(), String> {
        (self.ready)().map_err(str::to_owned)
    }
}
