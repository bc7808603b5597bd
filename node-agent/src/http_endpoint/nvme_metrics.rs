//! EBS statistics of the node's volumes on the metrics page, with the metric names of the Go
//! driver's collector.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::lock;
use ebs_csi_wire::{NvmeStatistics, Refusal, VolumeId};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Mutex;

use super::log_page::Statistics;
use crate::deadline::Deadline;
use crate::facts::live_facts::LiveFacts;
use crate::helper::{Helper, HelperError};

/// Time limit for all volumes together within one scrape.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for one volume: a disk that does not answer does not block the others.
const VOLUME_TIMEOUT: Duration = Duration::from_millis(500);
/// A page of at most this age is served again, so that several scrapers cause one read of the
/// disks.
const LONGEST_AGE: Duration = Duration::from_secs(1);
/// Upper bounds of the collection's own histogram, in seconds.
const BOUNDS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Collects the statistics when the metrics page is requested.
#[derive(Debug)]
pub struct Collection {
    helper: Arc<Helper>,
    facts: Arc<LiveFacts>,
    statistics: Arc<VolumeStatistics>,
    at: Mutex<Option<Instant>>,
}

impl Collection {
    /// Creates a collection for the volumes that the helper holds on the instance of these facts.
    pub fn new(
        helper: Arc<Helper>,
        facts: Arc<LiveFacts>,
        statistics: Arc<VolumeStatistics>,
    ) -> Self {
        Self { helper, facts, statistics, at: Mutex::default() }
    }

    /// Reads the statistics of each volume that is staged or published here. Does nothing until the
    /// instance, which is a label of each sample, is known.
    pub async fn refresh(&self) {
        let Some(instance) = self.facts.instance() else { return };
        let mut at = self.at.lock().await;
        if at.is_some_and(|at| at.elapsed() < LONGEST_AGE) {
            return;
        }
        let started = Instant::now();
        let (volumes, errors) = self.collect().await;
        self.statistics.replace(instance.as_str(), volumes, errors, started.elapsed());
        *at = Some(Instant::now());
    }

    async fn collect(&self) -> (Vec<(VolumeId, Statistics)>, u64) {
        let deadline = Deadline::after(TOTAL_TIMEOUT);
        let held = match self.helper.held(deadline).await {
            Ok(held) => held,
            Err(error) => {
                tracing::warn!(%error, "cannot see which volumes have statistics");
                return (Vec::new(), 1);
            }
        };
        // A volume is held at several places; a raw device is held at its published ones only.
        let volumes: BTreeSet<_> = held.into_iter().map(|entry| entry.volume).collect();
        let (mut found, mut errors) = (Vec::new(), 0);
        for volume in volumes {
            let limit = deadline.at_most(VOLUME_TIMEOUT);
            let request = NvmeStatistics { volume: volume.clone() };
            let statistics = match self.helper.send(request, limit).await {
                Ok(answer) => Statistics::parse(&answer.page).map_err(|error| error.to_string()),
                // A disk without an NVMe controller has no statistics.
                Err(HelperError::Refused(refused)) if refused.reason == Refusal::Unsupported => {
                    continue;
                }
                Err(error) => Err(error.to_string()),
            };
            match statistics {
                Ok(statistics) => found.push((volume, statistics)),
                Err(error) => {
                    tracing::warn!(volume.id = %volume, %error, "no statistics of this volume");
                    errors += 1;
                }
            }
        }
        (found, errors)
    }
}

/// The statistics of the last collection, and about all collections.
#[derive(Debug, Default)]
pub struct VolumeStatistics(std::sync::Mutex<Option<Collected>>);

#[derive(Debug)]
struct Collected {
    instance: String,
    volumes: Vec<(VolumeId, Statistics)>,
    scrapes: Counter,
    errors: Counter,
    seconds: Histogram,
}

impl VolumeStatistics {
    fn replace(
        &self,
        instance: &str,
        volumes: Vec<(VolumeId, Statistics)>,
        errors: u64,
        took: Duration,
    ) {
        let mut state = lock(&self.0);
        let collected = state.get_or_insert_with(|| Collected {
            instance: instance.to_owned(),
            volumes: Vec::new(),
            scrapes: Counter::default(),
            errors: Counter::default(),
            seconds: Histogram::new(BOUNDS),
        });
        collected.volumes = volumes;
        collected.scrapes.inc();
        collected.errors.inc_by(errors);
        collected.seconds.observe(took.as_secs_f64());
    }

    /// Returns the statistics of one volume, all zero.
    pub(crate) fn example() -> Self {
        let example = Self::default();
        let volume = VolumeId::parse("vol-0123456789abcdef0").into_iter();
        let volumes = volume.map(|volume| (volume, Statistics::default())).collect();
        example.replace("", volumes, 0, Duration::ZERO);
        example
    }
}

/// How a counter of [`Statistics`] is served.
#[derive(Clone, Copy)]
enum Served {
    Count,
    /// Microseconds, as seconds.
    Seconds,
    Gauge,
}

/// Name, help, and how each counter is served, in the order of [`Statistics::counters`].
const NUMBERS: [(&str, &str, Served); 11] = [
    ("aws_ebs_csi_read_ops", "Completed reads", Served::Count),
    ("aws_ebs_csi_write_ops", "Completed writes", Served::Count),
    ("aws_ebs_csi_read_bytes", "Bytes read", Served::Count),
    ("aws_ebs_csi_write_bytes", "Bytes written", Served::Count),
    ("aws_ebs_csi_read_seconds", "Time spent on reads", Served::Seconds),
    ("aws_ebs_csi_write_seconds", "Time spent on writes", Served::Seconds),
    (
        "aws_ebs_csi_exceeded_iops_seconds",
        "Time in which the volume's provisioned IOPS were exceeded",
        Served::Seconds,
    ),
    (
        "aws_ebs_csi_exceeded_tp_seconds",
        "Time in which the volume's provisioned throughput was exceeded",
        Served::Seconds,
    ),
    (
        "aws_ebs_csi_ec2_exceeded_iops_seconds",
        "Time in which the instance's IOPS were exceeded",
        Served::Seconds,
    ),
    (
        "aws_ebs_csi_ec2_exceeded_tp_seconds",
        "Time in which the instance's throughput was exceeded",
        Served::Seconds,
    ),
    ("aws_ebs_csi_volume_queue_length", "Operations that wait at the volume", Served::Gauge),
];

/// Name, help, and the index of the counter with the total time of the operations, in the order of
/// [`Statistics::latency`].
const HISTOGRAMS: [(&str, &str, usize); 2] = [
    ("aws_ebs_csi_read_io_latency_seconds", "Reads by latency", 4),
    ("aws_ebs_csi_write_io_latency_seconds", "Writes by latency", 5),
];

fn seconds(microseconds: u64) -> f64 {
    // A disk would need 285 years for more digits than an f64 has.
    microseconds as f64 / 1e6
}

impl Collector for VolumeStatistics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = lock(&self.0);
        let Some(collected) = &*state else { return Ok(()) };
        let instance = ("instance_id", collected.instance.as_str());
        let volumes: &[_] = &collected.volumes;
        if !volumes.is_empty() {
            for (index, (name, help, served)) in NUMBERS.into_iter().enumerate() {
                let kind = match served {
                    Served::Gauge => MetricType::Gauge,
                    Served::Count | Served::Seconds => MetricType::Counter,
                };
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                for (volume, statistics) in volumes {
                    let labels = [instance, ("volume_id", volume.as_str())];
                    let (value, encoder) =
                        (statistics.counters[index], family.encode_family(&labels)?);
                    match served {
                        Served::Count => ConstCounter::new(value).encode(encoder)?,
                        Served::Seconds => ConstCounter::new(seconds(value)).encode(encoder)?,
                        Served::Gauge => ConstGauge::new(value).encode(encoder)?,
                    }
                }
            }
            for (index, (name, help, total)) in HISTOGRAMS.into_iter().enumerate() {
                let mut family =
                    encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
                for (volume, statistics) in volumes {
                    let labels = [instance, ("volume_id", volume.as_str())];
                    let bins = &statistics.latency[index];
                    let count = bins.iter().map(|bin| u64::from(bin.count)).sum();
                    // The last bin of a page may have no upper bound.
                    let bounded = bins.iter().filter(|bin| bin.upper_us < u64::MAX);
                    let mut buckets: Vec<(f64, u64)> =
                        bounded.map(|bin| (seconds(bin.upper_us), bin.count.into())).collect();
                    let within: u64 = buckets.iter().map(|(_, count)| count).sum();
                    buckets.push((f64::INFINITY, count - within));
                    family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                        seconds(statistics.counters[total]),
                        count,
                        &buckets,
                        None,
                    )?;
                }
            }
        }
        let about: [(&str, &str, &dyn EncodeMetric); 3] = [
            ("aws_ebs_csi_nvme_collector_scrapes", "Collections of statistics", &collected.scrapes),
            (
                "aws_ebs_csi_nvme_collector_errors",
                "Volumes that gave no statistics",
                &collected.errors,
            ),
            (
                "aws_ebs_csi_nvme_collector_duration_seconds",
                "Time to collect the statistics",
                &collected.seconds,
            ),
        ];
        for (name, help, metric) in about {
            let mut family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(family.encode_family(&[instance])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_endpoint::log_page::example;
    use crate::metrics::Metrics;

    #[test]
    fn nvme_statistics_become_go_driver_metrics() {
        let volume = VolumeId::parse("vol-0123456789abcdef0").unwrap();
        let statistics = Statistics::parse(&example()).unwrap();
        let shown = VolumeStatistics::default();
        shown.replace("i-0123456789abcdef0", vec![(volume, statistics)], 0, Duration::ZERO);
        let mut metrics = Metrics::default();
        metrics.register_collector(Box::new(Arc::new(shown)));
        let page = metrics.page();
        let labels = r#"instance_id="i-0123456789abcdef0",volume_id="vol-0123456789abcdef0""#;
        for (name, labels_more, value) in [
            ("read_ops_total", "", "1"),
            ("write_ops_total", "", "2"),
            ("read_bytes_total", "", "3"),
            ("write_bytes_total", "", "4"),
            ("read_seconds_total", "", "0.000005"),
            ("write_seconds_total", "", "0.000006"),
            ("exceeded_iops_seconds_total", "", "0.000007"),
            ("exceeded_tp_seconds_total", "", "0.000008"),
            ("ec2_exceeded_iops_seconds_total", "", "0.000009"),
            ("ec2_exceeded_tp_seconds_total", "", "0.00001"),
            ("volume_queue_length", "", "11"),
            ("read_io_latency_seconds_bucket", r#"le="0.0005","#, "7"),
            ("read_io_latency_seconds_bucket", r#"le="2.0","#, "10"),
            ("read_io_latency_seconds_bucket", r#"le="+Inf","#, "10"),
            ("read_io_latency_seconds_sum", "", "0.000005"),
            ("read_io_latency_seconds_count", "", "10"),
            ("write_io_latency_seconds_count", "", "0"),
        ] {
            let sample = format!("aws_ebs_csi_{name}{{{labels_more}{labels}}} ");
            let found = page.lines().find_map(|line| line.strip_prefix(&sample)?.parse().ok());
            assert_eq!(found, value.parse::<f64>().ok(), "{sample}\n{page}");
        }
    }
}
