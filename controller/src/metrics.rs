//! The metrics of the controller: those of the Go driver under their names and labels, which
//! dashboards know, and a few more.

mod detaches;
mod safe_detach;

use std::sync::Arc;

use ebs_csi_ec2::{Action, LaneLevel, Observer};
use ebs_csi_proto::metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use detaches::Detaches;
use safe_detach::SafeDetach;

/// The default buckets of Prometheus' client libraries, in seconds.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

type Seconds = fn() -> Histogram;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRequest {
    request: String,
}

impl ByRequest {
    fn of(action: Action) -> Self {
        Self { request: action.name().to_owned() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCache {
    cache: String,
    result: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRpc {
    method: String,
    code: String,
}

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    all: metrics::Metrics,
    api_calls: ApiCalls,
    poll_batch: Family<ByRequest, Histogram, Seconds>,
    rpc_seconds: Family<ByRpc, Histogram, Seconds>,
    tokens: Family<ByRequest, Gauge<f64, std::sync::atomic::AtomicU64>>,
    refill: Family<ByRequest, Gauge<f64, std::sync::atomic::AtomicU64>>,
    waiting: Family<ByRequest, Gauge>,
    oldest: Family<ByRequest, Gauge<f64, std::sync::atomic::AtomicU64>>,
    cache: Family<ByCache, Counter>,
    under_way: Family<ByRequest, Gauge>,
    operations: Gauge,
    usable: Gauge,
    safe_detach: SafeDetach,
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

impl Default for Metrics {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Metrics {
    /// Creates the metrics, with nothing counted. `older_names` serves the API metrics under their
    /// older names, too.
    pub fn new(older_names: bool) -> Self {
        Self::register(metrics::Metrics::default(), older_names)
    }

    /// Returns a page on which each metric has a sample.
    pub fn example_page() -> String {
        let metrics = Self::register(metrics::Metrics::new(true), true);
        metrics.detaches.add_example();
        metrics.all.page()
    }

    fn register(mut all: metrics::Metrics, older_names: bool) -> Self {
        let detaches = Arc::new(Detaches::default());
        all.registry().register_collector(Box::new(Arc::clone(&detaches)));
        let metrics = Self {
            api_calls: ApiCalls::register(&mut all, older_names),
            poll_batch: all.register(
                "aws_ebs_csi_ec2_poll_batch_size",
                "Resources asked for in one call of a poller, by action",
                Family::new_with_constructor(batch_sizes as Seconds),
            ),
            rpc_seconds: all.register(
                "aws_ebs_csi_rpc_duration_seconds",
                "Duration of CSI calls, by method and gRPC code, in seconds",
                Family::new_with_constructor(seconds as Seconds),
            ),
            tokens: all.register(
                "aws_ebs_csi_ec2_bucket_tokens",
                "Calls that the driver's estimate of EC2's request bucket allows now, by action",
                Family::default(),
            ),
            refill: all.register(
                "aws_ebs_csi_ec2_bucket_refill_per_second",
                "Calls per second that the driver thinks EC2 grants for long, by action",
                Family::default(),
            ),
            waiting: all.register(
                "aws_ebs_csi_ec2_lane_waiting",
                "EC2 API calls that wait for their turn, by action",
                Family::default(),
            ),
            under_way: all.register(
                "aws_ebs_csi_ec2_lane_under_way",
                "EC2 API calls under way, by action",
                Family::default(),
            ),
            safe_detach: SafeDetach::register(&mut all),
            oldest: all.register(
                "aws_ebs_csi_ec2_lane_oldest_seconds",
                "How long the EC2 API call at the head of its queue has waited, by action",
                Family::default(),
            ),
            cache: all.register(
                "aws_ebs_csi_cache_lookups",
                "Look-ups of what is remembered about EC2, by what it is about and whether it was known",
                Family::default(),
            ),
            operations: all.register(
                "aws_ebs_csi_operations",
                "Operations on volumes and snapshots that are running, whether or not a caller waits for them",
                Gauge::default(),
            ),
            usable: all.register(
                "aws_ebs_csi_ec2_usable",
                "1 when the last check of the AWS credentials and permissions succeeded",
                Gauge::default(),
            ),
            scrapes: all.register(
                "aws_ebs_csi_ec2_collector_scrapes",
                "How often pending detaches were collected",
                Counter::default(),
            ),
            scrape_seconds: all.register(
                "aws_ebs_csi_ec2_collector_duration_seconds",
                "Time that collecting took, in seconds",
                Histogram::new([0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0]),
            ),
            detaches,
            all,
        };
        // Created at the start, so that a rate over them has a first value.
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

    /// Counts a CSI call that ended.
    pub(crate) fn rpc(&self, method: &str, code: &str, seconds: f64) {
        self.rpc_seconds
            .get_or_create(&ByRpc { method: method.to_owned(), code: code.to_owned() })
            .observe(seconds);
    }

    /// Sets the number of running operations.
    pub fn operations(&self, running: usize) {
        self.operations.set(i64::try_from(running).unwrap_or(i64::MAX));
    }

    /// Sets whether the last check of credentials and permissions succeeded.
    pub(crate) fn usable(&self, usable: bool) {
        self.usable.set(i64::from(usable));
    }

    /// Returns all metrics as text in the OpenMetrics format, with the current state of the lane of
    /// each action.
    pub fn encode(&self, lanes: &[(Action, LaneLevel)]) -> String {
        let started = Instant::now();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        for (action, level) in lanes {
            let request = ByRequest::of(*action);
            self.tokens.get_or_create(&request).set(level.tokens);
            self.refill.get_or_create(&request).set(level.refill);
            self.waiting.get_or_create(&request).set(count(level.waiting));
            self.oldest.get_or_create(&request).set(level.oldest.as_secs_f64());
            self.under_way.get_or_create(&request).set(count(level.under_way));
        }
        self.scrapes.inc();
        let page = self.all.page();
        self.scrape_seconds.observe(started.elapsed().as_secs_f64());
        page
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    request: String,
    code: String,
}

/// The Go driver's label for throttles is `operation_name`; `request` is added here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation_name: String,
    request: String,
}

#[derive(Debug)]
struct ApiCalls {
    seconds: Family<ByRequest, Histogram, Seconds>,
    errors: Family<ByCode, Counter>,
    throttles: Family<ByOperation, Counter>,
    older: Option<OlderNames>,
}

impl ApiCalls {
    fn register(all: &mut metrics::Metrics, older_names: bool) -> Self {
        Self {
            seconds: all.register(
                "aws_ebs_csi_api_request_duration_seconds",
                "Duration of successful EC2 API calls, by action, in seconds",
                Family::new_with_constructor(seconds as Seconds),
            ),
            errors: all.register(
                "aws_ebs_csi_api_request_errors",
                "EC2 API calls that failed for a reason other than throttling, by action and error code",
                Family::default(),
            ),
            throttles: all.register(
                "aws_ebs_csi_api_request_throttles",
                "EC2 API calls that were throttled, by action",
                Family::default(),
            ),
            older: older_names.then(|| OlderNames::register(all)),
        }
    }
}

impl Observer for Metrics {
    /// Shows the duration of calls of this action as zero, until one is counted: a rate over it has
    /// a first value then.
    fn expect_api_call(&self, action: Action) {
        let request = ByRequest::of(action);
        drop(self.api_calls.seconds.get_or_create(&request));
        if let Some(older) = &self.api_calls.older {
            drop(older.seconds.get_or_create(&request));
        }
    }

    fn api_call(&self, action: Action, seconds: f64) {
        let request = ByRequest::of(action);
        self.api_calls.seconds.get_or_create(&request).observe(seconds);
        if let Some(older) = &self.api_calls.older {
            older.seconds.get_or_create(&request).observe(seconds);
        }
    }

    fn api_error(&self, action: Action, code: &str) {
        let labels = ByCode { request: action.name().to_owned(), code: code.to_owned() };
        self.api_calls.errors.get_or_create(&labels).inc();
        if let Some(older) = &self.api_calls.older {
            older.errors.get_or_create(&labels).inc();
        }
    }

    fn api_throttle(&self, action: Action) {
        let labels = ByOperation {
            operation_name: action.name().to_owned(),
            request: action.name().to_owned(),
        };
        self.api_calls.throttles.get_or_create(&labels).inc();
        if let Some(older) = &self.api_calls.older {
            older.throttles.get_or_create(&labels).inc();
        }
    }

    fn poll_batch(&self, action: Action, size: usize) {
        self.poll_batch.get_or_create(&ByRequest::of(action)).observe(size as f64);
    }

    fn cache(&self, cache: &str, hit: bool) {
        let result = if hit { "hit" } else { "miss" };
        self.cache
            .get_or_create(&ByCache { cache: cache.to_owned(), result: result.to_owned() })
            .inc();
    }
}

/// The API metrics under their older names (`--deprecated-metrics`), with the present labels.
#[derive(Debug)]
struct OlderNames {
    seconds: Family<ByRequest, Histogram, Seconds>,
    // A gauge, because the name lacks the suffix that the OpenMetrics format demands of a counter;
    // the value is the same.
    errors: Family<ByCode, Gauge>,
    throttles: Family<ByOperation, Counter>,
}

impl OlderNames {
    fn register(all: &mut metrics::Metrics) -> Self {
        Self {
            seconds: all.register(
                "cloudprovider_aws_api_request_duration_seconds",
                "Older name of aws_ebs_csi_api_request_duration_seconds, with --deprecated-metrics",
                Family::new_with_constructor(seconds as Seconds),
            ),
            errors: all.register(
                "cloudprovider_aws_api_request_errors",
                "Older name of aws_ebs_csi_api_request_errors_total, with --deprecated-metrics",
                Family::default(),
            ),
            throttles: all.register(
                "cloudprovider_aws_api_throttled_requests",
                "Older name of aws_ebs_csi_api_request_throttles_total, with --deprecated-metrics",
                Family::default(),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
