use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_names_and_labels_are_those_of_the_go_driver() {
    let metrics = Metrics::default();
    metrics.api_call("CreateVolume", 0.4);
    metrics.api_error("CreateVolume", "InvalidParameterValue");
    metrics.api_throttle("AttachVolume");
    metrics.detach_pending("vol-1", "i-1", "busy", Instant::now());
    metrics.detach_pending("vol-2", "i-1", "detaching", Instant::now());
    metrics.detach_ended("vol-2", "i-1");
    tokio::time::advance(Duration::from_secs(61)).await;
    let text = metrics.encode(&[]).unwrap();
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
async fn a_detach_is_shown_only_after_a_minute() {
    let metrics = Metrics::default();
    metrics.detach_pending("vol-1", "i-1", "detaching", Instant::now());
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(
        !metrics
            .encode(&[])
            .unwrap()
            .contains("detach_pending_seconds_total")
    );
}
