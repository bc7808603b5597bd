//! Simulates, second by second and with the shipped functions, what takes minutes in a cluster and
//! depends on periods: without a clock and without sleeping. A seed shifts the periods of the
//! observers against each other. The name of each test begins with the number of its scenario.

mod cluster;
#[path = "../model/kubernetes_objects.rs"]
mod kubernetes_objects;

use cluster::Cluster;
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

/// A 10-minute outage and the 10 minutes after it cause no taint, no detach and no pod deletion.
#[test]
fn f42_api_server_outage_marks_no_node_dead() {
    each_seed(|cluster| {
        cluster.api_server_up = false;
        cluster.run(10 * MINUTE);
        cluster.api_server_up = true;
        cluster.run(10 * MINUTE);
        cluster.assert_left_alone();
    });
}

/// No detach is sent while the API server is down; the pod moves within 3 minutes of its return.
#[test]
fn f42_instance_stopped_during_outage_fails_over_afterwards() {
    each_seed(|cluster| {
        cluster.api_server_up = false;
        cluster.run(5 * MINUTE);
        cluster.set_power(Power::Stopped);
        cluster.run(5 * MINUTE);
        assert_eq!(cluster.detaches_sent, 0, "{cluster:?}");
        cluster.api_server_up = true;
        cluster.run_until_pod_moves(3 * MINUTE);
    });
}
