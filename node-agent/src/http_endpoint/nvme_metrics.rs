//! EBS statistics of the node's volumes on the metrics page, with the metric names of the Go
//! driver's collector.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_wire::{NvmeStatistics, Refusal, VolumeId};
use tokio::sync::Mutex;

use super::log_page::{Bin, Statistics};
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
pub struct Collector {
    helper: Arc<Helper>,
    facts: Arc<LiveFacts>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    page: String,
    at: Option<Instant>,
    scrapes: u64,
    errors: u64,
    within: [u64; BOUNDS.len()],
    seconds: f64,
}

impl Collector {
    /// Creates a collector for the volumes that the helper holds on the instance of these facts.
    #[must_use]
    pub fn new(helper: Arc<Helper>, facts: Arc<LiveFacts>) -> Self {
        Self { helper, facts, state: Mutex::default() }
    }

    /// Returns the lines of the page: each volume that is staged or published here, and statistics
    /// about the collection. Empty until the instance, which is a label of each line, is known.
    pub async fn page(&self) -> String {
        let Some(instance) = self.facts.instance() else {
            return String::new();
        };
        let mut state = self.state.lock().await;
        if state.at.is_some_and(|at| at.elapsed() < LONGEST_AGE) {
            return state.page.clone();
        }
        let started = Instant::now();
        let (volumes, errors) = self.collect().await;
        let seconds = started.elapsed().as_secs_f64();
        state.scrapes += 1;
        state.errors += errors;
        state.seconds += seconds;
        for (bound, within) in BOUNDS.iter().zip(&mut state.within) {
            *within += u64::from(seconds <= *bound);
        }
        let mut page = String::new();
        // Writing to a String cannot fail.
        let _ = write_volumes(&mut page, instance.as_str(), &volumes);
        let _ = state.write(&mut page, instance.as_str());
        state.page.clone_from(&page);
        state.at = Some(Instant::now());
        page
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

/// A number of [`Statistics`].
type Field = fn(&Statistics) -> u64;

/// Name, kind, help, field, and divisor.
const NUMBERS: [(&str, &str, &str, Field, u64); 11] = [
    ("read_ops_total", "counter", "Completed reads.", |s| s.read_ops, 1),
    ("write_ops_total", "counter", "Completed writes.", |s| s.write_ops, 1),
    ("read_bytes_total", "counter", "Bytes read.", |s| s.read_bytes, 1),
    ("write_bytes_total", "counter", "Bytes written.", |s| s.write_bytes, 1),
    ("read_seconds_total", "counter", "Time spent on reads.", |s| s.read_us, MICROSECONDS),
    ("write_seconds_total", "counter", "Time spent on writes.", |s| s.write_us, MICROSECONDS),
    (
        "exceeded_iops_seconds_total",
        "counter",
        "Time in which the volume's provisioned IOPS were exceeded.",
        |s| s.volume_iops_exceeded_us,
        MICROSECONDS,
    ),
    (
        "exceeded_tp_seconds_total",
        "counter",
        "Time in which the volume's provisioned throughput was exceeded.",
        |s| s.volume_throughput_exceeded_us,
        MICROSECONDS,
    ),
    (
        "ec2_exceeded_iops_seconds_total",
        "counter",
        "Time in which the instance's IOPS were exceeded.",
        |s| s.instance_iops_exceeded_us,
        MICROSECONDS,
    ),
    (
        "ec2_exceeded_tp_seconds_total",
        "counter",
        "Time in which the instance's throughput was exceeded.",
        |s| s.instance_throughput_exceeded_us,
        MICROSECONDS,
    ),
    ("volume_queue_length", "gauge", "Operations that wait at the volume.", |s| s.queue_length, 1),
];

/// Microseconds in a second.
const MICROSECONDS: u64 = 1_000_000;

/// Bins of [`Statistics`].
type Bins = fn(&Statistics) -> &[Bin];

/// Name, help, bins, and the total time of the operations.
const HISTOGRAMS: [(&str, &str, Bins, Field); 2] = [
    ("read_io_latency_seconds", "Reads by latency.", |s| &s.read_latency, |s| s.read_us),
    ("write_io_latency_seconds", "Writes by latency.", |s| &s.write_latency, |s| s.write_us),
];

fn head(page: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(page, "# HELP aws_ebs_csi_{name} {help}\n# TYPE aws_ebs_csi_{name} {kind}")
}

fn write_volumes(
    page: &mut String,
    instance: &str,
    volumes: &[(VolumeId, Statistics)],
) -> std::fmt::Result {
    if volumes.is_empty() {
        return Ok(());
    }
    for (name, kind, help, field, divisor) in NUMBERS {
        head(page, name, kind, help)?;
        for (volume, statistics) in volumes {
            let value = scaled(field(statistics), divisor);
            writeln!(
                page,
                "aws_ebs_csi_{name}{{instance_id=\"{instance}\",volume_id=\"{volume}\"}} {value}"
            )?;
        }
    }
    for (name, help, bins, sum) in HISTOGRAMS {
        head(page, name, "histogram", help)?;
        for (volume, statistics) in volumes {
            let labels = format!("instance_id=\"{instance}\",volume_id=\"{volume}\"");
            let mut count = 0_u64;
            for bin in bins(statistics) {
                count += u64::from(bin.count);
                // The last bin of a page may have no upper bound.
                if bin.upper_us < u64::MAX {
                    let bound = scaled(bin.upper_us, MICROSECONDS);
                    writeln!(page, "aws_ebs_csi_{name}_bucket{{{labels},le=\"{bound}\"}} {count}")?;
                }
            }
            let sum = scaled(sum(statistics), MICROSECONDS);
            writeln!(page, "aws_ebs_csi_{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
            writeln!(page, "aws_ebs_csi_{name}_sum{{{labels}}} {sum}")?;
            writeln!(page, "aws_ebs_csi_{name}_count{{{labels}}} {count}")?;
        }
    }
    Ok(())
}

/// Returns a quotient as Prometheus writes it; whole numbers stay exact.
fn scaled(value: u64, divisor: u64) -> String {
    let (whole, rest) = (value / divisor, value % divisor);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = format!("{rest:06}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

impl State {
    fn write(&self, page: &mut String, instance: &str) -> std::fmt::Result {
        let label = format!("instance_id=\"{instance}\"");
        for (name, help, value) in [
            ("nvme_collector_scrapes_total", "Collections of statistics.", self.scrapes),
            ("nvme_collector_errors_total", "Volumes that gave no statistics.", self.errors),
        ] {
            head(page, name, "counter", help)?;
            writeln!(page, "aws_ebs_csi_{name}{{{label}}} {value}")?;
        }
        let name = "nvme_collector_duration_seconds";
        head(page, name, "histogram", "Time to collect the statistics.")?;
        for (bound, within) in BOUNDS.iter().zip(self.within) {
            writeln!(page, "aws_ebs_csi_{name}_bucket{{{label},le=\"{bound}\"}} {within}")?;
        }
        let (count, seconds) = (self.scrapes, self.seconds);
        writeln!(page, "aws_ebs_csi_{name}_bucket{{{label},le=\"+Inf\"}} {count}")?;
        writeln!(page, "aws_ebs_csi_{name}_sum{{{label}}} {seconds}")?;
        writeln!(page, "aws_ebs_csi_{name}_count{{{label}}} {count}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_endpoint::log_page::example;

    #[test]
    fn nvme_statistics_become_go_driver_metrics() {
        let volume = VolumeId::parse("vol-0123456789abcdef0").unwrap();
        let statistics = Statistics::parse(&example()).unwrap();
        let mut page = String::new();
        write_volumes(&mut page, "i-0123456789abcdef0", &[(volume, statistics)]).unwrap();
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
            ("read_io_latency_seconds_bucket", r#",le="0.0005""#, "7"),
            ("read_io_latency_seconds_bucket", r#",le="2""#, "10"),
            ("read_io_latency_seconds_bucket", r#",le="+Inf""#, "10"),
            ("read_io_latency_seconds_sum", "", "0.000005"),
            ("read_io_latency_seconds_count", "", "10"),
            ("write_io_latency_seconds_count", "", "0"),
        ] {
            let line = format!("aws_ebs_csi_{name}{{{labels}{labels_more}}} {value}");
            assert!(page.lines().any(|have| have == line), "{line}\n{page}");
        }
    }
}
