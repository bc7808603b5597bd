//! Metrics of EC2 calls, under the names of the Go driver and, when asked, under its older names.

use ebs_csi_ec2::{Action, Observer};
use ebs_csi_proto::metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{ByCache, ByRequest, Metrics, Seconds, seconds};

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

/// Durations, failures and throttles of EC2 calls.
#[derive(Debug)]
pub(super) struct ApiCalls {
    seconds: Family<ByRequest, Histogram, Seconds>,
    errors: Family<ByCode, Counter>,
    throttles: Family<ByOperation, Counter>,
    older: Option<OlderNames>,
}

impl ApiCalls {
    /// Registers the metrics; with `older_names` under their older names, too.
    pub(super) fn register(all: &mut metrics::Metrics, older_names: bool) -> Self {
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
