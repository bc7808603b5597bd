//! What the controller counts, under the names and labels that dashboards of the Go driver know, and a few of its own.

mod detaches;
mod labels;

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::ec2::{Action, LaneLevel};

use detaches::Detaches;
use labels::{ByCache, ByCode, ByFence, ByMode, ByOperation, ByRequest, ByRpc, ByVerdict};

/// The default buckets of Prometheus' client libraries, in seconds.
const SECONDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

type Seconds = fn() -> Histogram;

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    api_seconds: Family<ByRequest, Histogram, Seconds>,
    api_errors: Family<ByCode, Counter>,
    api_throttles: Family<ByOperation, Counter>,
    poll_batch: Family<ByRequest, Histogram, Seconds>,
    rpc_seconds: Family<ByRpc, Histogram, Seconds>,
    tokens: Family<ByRequest, Gauge<f64, std::sync::atomic::AtomicU64>>,
    refill: Family<ByRequest, Gauge<f64, std::sync::atomic::AtomicU64>>,
    waiting: Family<ByRequest, Gauge>,
    oldest: Family<ByRequest, Gauge<f64, std::sync::atomic::AtomicU64>>,
    cache: Family<ByCache, Counter>,
    older: Option<OlderNames>,
    under_way: Family<ByRequest, Gauge>,
    operations: Gauge,
    usable: Gauge,
    safe_detach_mode: Family<ByMode, Gauge>,
    safe_detach_decisions: Family<ByVerdict, Counter>,
    safe_detach_fences: Family<ByFence, Counter>,
    safe_detach_observers: Gauge,
    forced_detaches: Counter,
    scrapes: Counter,
    scrape_seconds: Histogram,
    detaches: Arc<Detaches>,
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn batch_sizes() -> Histogram {
    Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0])
}

/// The API metrics under the names that they had before (`--deprecated-metrics`), with the labels that they have now.
#[derive(Debug)]
struct OlderNames {
    seconds: Family<ByRequest, Histogram, Seconds>,
    // Its name does not end as a counter's must in the OpenMetrics format; the number is the same.
    errors: Family<ByCode, Gauge>,
    throttles: Family<ByOperation, Counter>,
}

impl OlderNames {
    fn register(registry: &mut Registry) -> Self {
        let older = Self {
            seconds: Family::new_with_constructor(seconds as Seconds),
            errors: Family::default(),
            throttles: Family::default(),
        };
        registry.register(
            "cloudprovider_aws_api_request_duration_seconds",
            "Older name of aws_ebs_csi_api_request_duration_seconds",
            older.seconds.clone(),
        );
        registry.register(
            "cloudprovider_aws_api_request_errors",
            "Older name of aws_ebs_csi_api_request_errors_total",
            older.errors.clone(),
        );
        registry.register(
            "cloudprovider_aws_api_throttled_requests",
            "Older name of aws_ebs_csi_api_request_throttles_total",
            older.throttles.clone(),
        );
        older
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Metrics {
    /// Nothing is counted yet. `older_names`: the API metrics also under the names that they had before.
    pub fn new(older_names: bool) -> Self {
        let mut registry = Registry::default();
        let api_seconds = Family::new_with_constructor(seconds as Seconds);
        registry.register(
            "aws_ebs_csi_api_request_duration_seconds",
            "Duration of successful EC2 API calls, by action, in seconds",
            api_seconds.clone(),
        );
        let api_errors = Family::default();
        registry.register(
            "aws_ebs_csi_api_request_errors",
            "EC2 API calls that failed for a reason other than throttling, by action and error code",
            api_errors.clone(),
        );
        let api_throttles = Family::default();
        registry.register(
            "aws_ebs_csi_api_request_throttles",
            "EC2 API calls that were throttled, by action",
            api_throttles.clone(),
        );
        let poll_batch = Family::new_with_constructor(batch_sizes as Seconds);
        registry.register(
            "aws_ebs_csi_ec2_poll_batch_size",
            "Resources asked for in one call of a poller, by action",
            poll_batch.clone(),
        );
        let rpc_seconds = Family::new_with_constructor(seconds as Seconds);
        registry.register(
            "aws_ebs_csi_rpc_duration_seconds",
            "Duration of CSI calls, by method and gRPC code, in seconds",
            rpc_seconds.clone(),
        );
        let (tokens, refill, waiting, under_way) = (
            Family::default(),
            Family::default(),
            Family::default(),
            Family::default(),
        );
        registry.register(
            "aws_ebs_csi_ec2_bucket_tokens",
            "Calls that the driver's estimate of EC2's request bucket allows now, by action",
            tokens.clone(),
        );
        registry.register(
            "aws_ebs_csi_ec2_bucket_refill_per_second",
            "Calls per second that the driver thinks EC2 grants for long, by action",
            refill.clone(),
        );
        registry.register(
            "aws_ebs_csi_ec2_lane_waiting",
            "EC2 API calls that wait for their turn, by action",
            waiting.clone(),
        );
        registry.register(
            "aws_ebs_csi_ec2_lane_under_way",
            "EC2 API calls under way, by action",
            under_way.clone(),
        );
        let (safe_detach_mode, safe_detach_decisions) = (Family::default(), Family::default());
        registry.register(
            "aws_ebs_csi_safe_detach_mode",
            "1 for the mode of safe detach that is in force",
            safe_detach_mode.clone(),
        );
        registry.register(
            "aws_ebs_csi_safe_detach_decisions",
            "Decisions whether a volume may leave a node, by verdict and by the evidence or the reason",
            safe_detach_decisions.clone(),
        );
        let safe_detach_fences = Family::default();
        registry.register(
            "aws_ebs_csi_safe_detach_fences",
            "Fences that were asked for, by mode and by what came of it",
            safe_detach_fences.clone(),
        );
        let safe_detach_observers = Gauge::default();
        registry.register(
            "aws_ebs_csi_safe_detach_observers",
            "Processes that are connected to answer what nodes say",
            safe_detach_observers.clone(),
        );
        let forced_detaches = Counter::default();
        registry.register(
            "aws_ebs_csi_safe_detach_forced",
            "Detaches that were forced by a person's order",
            forced_detaches.clone(),
        );
        let oldest = Family::default();
        registry.register(
            "aws_ebs_csi_ec2_lane_oldest_seconds",
            "How long the EC2 API call at the head of its queue has waited, by action",
            oldest.clone(),
        );
        let cache = Family::default();
        registry.register(
            "aws_ebs_csi_cache_lookups",
            "Look-ups of what is remembered about EC2, by what it is about and whether it was known",
            cache.clone(),
        );
        let older = older_names.then(|| OlderNames::register(&mut registry));
        let (operations, usable) = (Gauge::default(), Gauge::default());
        registry.register(
            "aws_ebs_csi_operations",
            "Operations on volumes and snapshots that are running, whether or not a caller waits for them",
            operations.clone(),
        );
        registry.register(
            "aws_ebs_csi_ec2_usable",
            "1 when the last check of the AWS credentials and permissions succeeded",
            usable.clone(),
        );
        let (scrapes, scrape_seconds) = (
            Counter::default(),
            Histogram::new([0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0]),
        );
        registry.register(
            "aws_ebs_csi_ec2_collector_scrapes",
            "How often pending detaches were collected",
            scrapes.clone(),
        );
        registry.register(
            "aws_ebs_csi_ec2_collector_duration_seconds",
            "Time that collecting took, in seconds",
            scrape_seconds.clone(),
        );
        let detaches = Arc::new(Detaches::default());
        registry.register_collector(Box::new(Arc::clone(&detaches)));
        let metrics = Self {
            registry,
            api_seconds,
            api_errors,
            api_throttles,
            poll_batch,
            rpc_seconds,
            tokens,
            refill,
            waiting,
            oldest,
            cache,
            older,
            under_way,
            operations,
            usable,
            safe_detach_mode,
            safe_detach_decisions,
            safe_detach_fences,
            safe_detach_observers,
            forced_detaches,
            scrapes,
            scrape_seconds,
            detaches,
        };
        // Present from the start, so that a rate over them has a first value.
        for action in Action::ALL {
            let request = ByRequest {
                request: action.name().to_owned(),
            };
            drop(metrics.api_seconds.get_or_create(&request));
            if let Some(older) = &metrics.older {
                drop(older.seconds.get_or_create(&request));
            }
        }
        for result in ["hit", "miss"] {
            for cache in ["iops_maximum", "instance_type"] {
                drop(metrics.cache.get_or_create(&ByCache {
                    cache: cache.to_owned(),
                    result: result.to_owned(),
                }));
            }
        }
        metrics
    }

    /// An EC2 call succeeded.
    pub(crate) fn api_call(&self, action: &str, seconds: f64) {
        let request = ByRequest {
            request: action.to_owned(),
        };
        self.api_seconds.get_or_create(&request).observe(seconds);
        if let Some(older) = &self.older {
            older.seconds.get_or_create(&request).observe(seconds);
        }
    }

    /// An EC2 call failed.
    pub(crate) fn api_error(&self, action: &str, code: &str) {
        let labels = ByCode {
            request: action.to_owned(),
            code: code.to_owned(),
        };
        self.api_errors.get_or_create(&labels).inc();
        if let Some(older) = &self.older {
            older.errors.get_or_create(&labels).inc();
        }
    }

    /// An EC2 call was throttled.
    pub(crate) fn api_throttle(&self, action: &str) {
        let labels = ByOperation {
            operation_name: action.to_owned(),
            request: action.to_owned(),
        };
        self.api_throttles.get_or_create(&labels).inc();
        if let Some(older) = &self.older {
            older.throttles.get_or_create(&labels).inc();
        }
    }

    /// What is remembered about EC2 was looked for, and known or not.
    pub(crate) fn cache(&self, cache: &str, hit: bool) {
        let result = if hit { "hit" } else { "miss" };
        self.cache
            .get_or_create(&ByCache {
                cache: cache.to_owned(),
                result: result.to_owned(),
            })
            .inc();
    }

    /// A poller asks for so many resources in one call.
    pub(crate) fn poll_batch(&self, action: &str, size: usize) {
        self.poll_batch
            .get_or_create(&ByRequest {
                request: action.to_owned(),
            })
            .observe(size as f64);
    }

    /// A CSI call ended.
    pub(crate) fn rpc(&self, method: &str, code: &str, seconds: f64) {
        self.rpc_seconds
            .get_or_create(&ByRpc {
                method: method.to_owned(),
                code: code.to_owned(),
            })
            .observe(seconds);
    }

    /// So many operations are running.
    pub fn operations(&self, running: usize) {
        self.operations
            .set(i64::try_from(running).unwrap_or(i64::MAX));
    }

    /// Whether the last check of credentials and permissions succeeded.
    pub(crate) fn safe_detach_mode(&self, mode: impl fmt::Display) {
        self.safe_detach_mode
            .get_or_create(&ByMode {
                mode: mode.to_string(),
            })
            .set(1);
    }

    pub(crate) fn safe_detach_decided(&self, (verdict, evidence): (&'static str, &'static str)) {
        self.safe_detach_decisions
            .get_or_create(&ByVerdict { verdict, evidence })
            .inc();
    }

    pub(crate) fn fenced(&self, mode: &'static str, result: &'static str) {
        self.safe_detach_fences
            .get_or_create(&ByFence { mode, result })
            .inc();
    }

    /// Observers of nodes have come (1) or gone (-1).
    pub(crate) fn observer(&self, change: i64) {
        self.safe_detach_observers.inc_by(change);
    }

    pub(crate) fn forced_detach(&self) {
        self.forced_detaches.inc();
    }

    pub(crate) fn usable(&self, usable: bool) {
        self.usable.set(i64::from(usable));
    }

    /// A detach that began at `since` is still in this state. It is shown once it has lasted a minute.
    pub fn detach_pending(&self, volume: &str, instance: &str, state: &str, since: Instant) {
        self.detaches.set(volume, instance, state, since);
    }

    /// A detach ended, or nobody waits for it any more.
    pub fn detach_ended(&self, volume: &str, instance: &str) {
        self.detaches.remove(volume, instance);
    }

    /// Everything as text, in the OpenMetrics format, with the lanes as they are now.
    ///
    /// # Errors
    /// When a metric cannot be written, which is a fault of the driver.
    pub fn encode(&self, lanes: &[(Action, LaneLevel)]) -> Result<String, fmt::Error> {
        let started = Instant::now();
        for (action, level) in lanes {
            let request = ByRequest {
                request: action.name().to_owned(),
            };
            self.tokens.get_or_create(&request).set(level.tokens);
            self.refill.get_or_create(&request).set(level.refill);
            self.waiting
                .get_or_create(&request)
                .set(i64::try_from(level.waiting).unwrap_or(i64::MAX));
            self.oldest
                .get_or_create(&request)
                .set(level.oldest.as_secs_f64());
            self.under_way
                .get_or_create(&request)
                .set(i64::try_from(level.under_way).unwrap_or(i64::MAX));
        }
        self.scrapes.inc();
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        self.scrape_seconds.observe(started.elapsed().as_secs_f64());
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
