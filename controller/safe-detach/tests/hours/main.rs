//! Simulates, second by second and with the shipped functions, what takes minutes or hours in a
//! cluster: without a clock, without sleeping, and with seeded random numbers for everything that
//! is not determined. The name of each test begins with the number of its scenario.

mod cluster;
#[path = "../model/kubernetes_objects.rs"]
mod kubernetes_objects;

use cluster::{Cluster, Ec2Answers};
use ebs_csi_safe_detach::Power;

const SEEDS: u64 = 200;
const MINUTE: u64 = 60;

/// Runs one history for each seed. The message of a broken property contains the cluster's state.
fn each_seed(history: impl Fn(&mut Cluster)) {
    for seed in 0..SEEDS {
        let mut cluster = Cluster::new(seed);
        cluster.run(MINUTE);
        history(&mut cluster);
    }
}

/// No taint, detach or pod deletion happens before EC2 shows the instance stopped; then the pod
/// moves within 2 minutes.
#[test]
fn f4_driver_waits_while_instance_stops_10_minutes() {
    each_seed(|cluster| {
        cluster.set_power(Power::Stopping);
        // Kubelet stops early; its mounts may be written to until the instance is off.
        cluster.cut_off_node();
        cluster.run(10 * MINUTE);
        cluster.assert_left_alone();
        cluster.set_power(Power::Stopped);
        cluster.run_until_pod_moves(2 * MINUTE);
    });
}

#[test]
fn f26_detach_busy_30_minutes_is_sent_once() {
    each_seed(|cluster| {
        cluster.detach_seconds = 30 * MINUTE;
        cluster.delete_pod();
        cluster.run(29 * MINUTE);
        assert_eq!(cluster.detaches_sent, 1, "{cluster:?}");
        assert!(cluster.calls_timed_out > 0, "no call has run out of time: {cluster:?}");
        // The longest pause between two calls of external-attacher, and the rest of the half hour.
        cluster.run_until_pod_moves(8 * MINUTE);
        assert_eq!(cluster.detaches_sent, 1, "{cluster:?}");
    });
}

/// With 4 of 5 calls throttled, a running instance gets no taint and no detach; after it stops and
/// the storm ends, the pod runs elsewhere within 8 minutes.
#[test]
fn f29_throttling_proves_nothing_and_pod_moves_later() {
    each_seed(|cluster| {
        cluster.ec2_answers = Ec2Answers::Throttled;
        cluster.cut_off_node();
        cluster.run(10 * MINUTE);
        cluster.assert_left_alone();
        cluster.set_power(Power::Stopped);
        cluster.run(20 * MINUTE);
        cluster.ec2_answers = Ec2Answers::Correct;
        // The longest pause between two calls of external-attacher, and the time of a failover.
        cluster.run_until_pod_moves(8 * MINUTE);
    });
}

/// For an hour, EC2 reports at every second call that the instance does not exist; after the
/// instance stops, the pod moves within 10 minutes.
#[test]
fn f30_running_instance_keeps_volume_despite_intermittent_notfound() {
    each_seed(|cluster| {
        cluster.ec2_answers = Ec2Answers::AlternatingNotFound;
        cluster.cut_off_node();
        cluster.run(60 * MINUTE);
        cluster.assert_left_alone();
        cluster.set_power(Power::Stopped);
        cluster.run_until_pod_moves(10 * MINUTE);
    });
}

/// A 10-minute outage and the 10 minutes after it cause no taint, no detach and no pod deletion.
#[test]
fn f42_api_server_outage_marks_no_node_dead() {
    each_seed(|cluster| {
        cluster.set_api_server_up(false);
        cluster.run(10 * MINUTE);
        cluster.set_api_server_up(true);
        cluster.run(10 * MINUTE);
        cluster.assert_left_alone();
    });
}

/// No detach is sent while the API server is down; the pod moves within 3 minutes of its return.
#[test]
fn f42_instance_stopped_during_outage_fails_over_afterwards() {
    each_seed(|cluster| {
        cluster.set_api_server_up(false);
        cluster.run(5 * MINUTE);
        cluster.set_power(Power::Stopped);
        cluster.run(5 * MINUTE);
        assert_eq!(cluster.detaches_sent, 0, "{cluster:?}");
        cluster.set_api_server_up(true);
        cluster.run_until_pod_moves(3 * MINUTE);
    });
}
