//! What the tasks of the process share.

use std::sync::Arc;

use kube::Client;

use crate::cluster::Tables;
use crate::controller_client::Controller;
use crate::events::EventSender;
use crate::leader::Leader;
use crate::metrics::Metrics;

/// The handles that most tasks need.
#[derive(Clone)]
pub struct Context {
    /// The client for acts and for second reads.
    pub client: Client,
    /// The namespace of the kill switch.
    pub namespace: String,
    /// The watched objects.
    pub tables: Arc<Tables>,
    /// The controller, which reports what EC2 proves.
    pub controller: Controller,
    /// Whether this process may act.
    pub leader: Arc<Leader>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Queues the events.
    pub events: Arc<EventSender>,
}
