use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn metric_names_and_labels_match_go_driver() {
    let metrics = Metrics::default();
    metrics.expect_api_call(Action::DeleteVolume);
    metrics.api_call(Action::CreateVolume, 0.4);
    metrics.api_error(Action::CreateVolume, "InvalidParameterValue");
    metrics.api_throttle(Action::AttachVolume);
    metrics.detach_pending("vol-1", "i-1", "busy", Instant::now());
    metrics.detach_pending("vol-2", "i-1", "detaching", Instant::now());
    metrics.detach_ended("vol-2", "i-1");
    tokio::time::advance(Duration::from_secs(61)).await;
    let text = metrics.encode(&[]);
    for line in [
        "aws_ebs_csi_api_request_duration_seconds_count{request=\"CreateVolume\"} 1",
        "aws_ebs_csi_api_request_duration_seconds_count{request=\"DeleteVolume\"} 0",
        "aws_ebs_csi_api_request_errors_total{request=\"CreateVolume\",code=\"InvalidParameterValue\"} 1",
        "aws_ebs_csi_api_request_throttles_total{operation_name=\"AttachVolume\",request=\"AttachVolume\"} 1",
        "aws_ebs_csi_ec2_detach_pending_seconds_total{volume_id=\"vol-1\",instance_id=\"i-1\",attachment_state=\"busy\"} 61.0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("vol-2"));
}

#[tokio::test(start_paused = true)]
async fn pending_detach_metric_is_absent_before_60_seconds() {
    let metrics = Metrics::default();
    metrics.detach_pending("vol-1", "i-1", "detaching", Instant::now());
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(!metrics.encode(&[]).contains("detach_pending_seconds_total"));
}

#[tokio::test(start_paused = true)]
async fn pending_detach_keeps_counting_across_retries_until_abandoned() {
    let metrics = Metrics::default();
    let shown = || {
        let text = metrics.encode(&[]);
        let mut lines = text.lines().filter(|line| line.contains("detach_pending_seconds_total{"));
        lines.next().and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
    metrics.detach_pending("vol-1", "i-1", "busy", Instant::now());
    wait(360).await;
    metrics.detach_timed_out("vol-1", "i-1");
    wait(300).await;
    assert_eq!(shown(), Some(660.0), "between two tries");
    metrics.detach_pending("vol-1", "i-1", "busy", Instant::now());
    wait(10).await;
    assert_eq!(shown(), Some(670.0), "and in the next");
    metrics.detach_timed_out("vol-1", "i-1");
    wait(600).await;
    assert_eq!(shown(), None, "nobody asks any more");
    metrics.detach_pending("vol-1", "i-1", "busy", Instant::now());
    wait(70).await;
    assert_eq!(shown(), Some(70.0), "another one");
    metrics.detach_ended("vol-1", "i-1");
    assert_eq!(shown(), None);
}

fn deploy(name: &str) -> String {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let path = std::path::PathBuf::from(here).join("../deploy").join(name);
    std::fs::read_to_string(&path).expect("a file of deploy/")
}

/// Returns the series that the expression of an alert names: `NAME` or `NAME{LABEL="VALUE"}`.
fn series(expression: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = expression.match_indices("aws_ebs_csi_");
    let series = starts.map(|(at, _)| {
        let rest = &expression[at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        match rest[end..].strip_prefix('{').and_then(|l| l.split_once('}')) {
            Some((labels, _)) => format!("{}{{{labels}", &rest[..end]),
            None => rest[..end].to_owned(),
        }
    });
    series.collect()
}

#[tokio::test(start_paused = true)]
async fn alerts_use_served_metrics_and_have_runbook_entry() {
    let metrics = Metrics::default();
    metrics.safe_detach_mode("enforce");
    metrics.detach_pending("vol-1", "i-1", "busy", Instant::now());
    tokio::time::advance(Duration::from_secs(61)).await;
    let served = metrics.encode(&[]);
    let rules = deploy("install/manifests/controller-alerts.yaml");
    let runbook = deploy("docs/safe-detach.md");
    let mut alerts = 0;
    for rule in rules.split("- alert: ").skip(1) {
        alerts += 1;
        let name = rule.lines().next().unwrap_or_default().trim();
        assert!(runbook.contains(&format!("**{name}**")), "{name}: what to do");
        let expression = rule.split("expr: ").nth(1).and_then(|rest| rest.lines().next());
        let named = series(expression.expect("an expression on one line"));
        assert!(!named.is_empty(), "{name}");
        for series in named {
            let is_served = served.lines().any(|line| {
                let after = line.strip_prefix(series.as_str());
                after.is_some_and(|rest| rest.starts_with(['{', ' ', ',', '}']))
            });
            assert!(is_served, "{name}: {series} is not served\n{served}");
        }
    }
    assert!(alerts >= 4);
}
