//! What takes minutes or hours in a cluster, told second by second with the functions that ship: no clock, no sleep, and dice with a seed in place
//! of whatever is not determined. Each test has its scenario's number.

mod cluster;

use cluster::{Cluster, Weather};
use ebs_csi_safe_detach::Power;

const SEEDS: u64 = 200;
const MINUTE: u64 = 60;

/// Runs one history a seed. A broken property says at which seed and second.
fn each_seed(history: impl Fn(&mut Cluster)) {
    for seed in 0..SEEDS {
        let mut cluster = Cluster::new(seed);
        cluster.run(MINUTE);
        history(&mut cluster);
    }
}

#[test]
fn f4_an_instance_that_stops_for_ten_minutes_is_waited_for() {
    each_seed(|cluster| {
        cluster.power(Power::Stopping);
        // Its kubelet ends early; what it mounted may be written to until the instance is off.
        cluster.cut_off();
        cluster.run(10 * MINUTE);
        assert!(!cluster.is_tainted(), "{cluster:?}");
        assert_eq!((cluster.sent, cluster.pods_deleted), (0, 0), "{cluster:?}");
        cluster.power(Power::Stopped);
        cluster.until_moved(2 * MINUTE);
    });
}

#[test]
fn f26_a_detach_that_is_busy_for_half_an_hour_is_asked_for_once() {
    each_seed(|cluster| {
        cluster.busy_for = 30 * MINUTE;
        cluster.delete_pod();
        cluster.run(29 * MINUTE);
        assert_eq!(cluster.sent, 1, "{cluster:?}");
        assert!(
            cluster.deadlines > 0,
            "no call has run out of time: {cluster:?}"
        );
        // The longest pause between two tries of external-attacher, and what is left of the half hour.
        cluster.until_moved(8 * MINUTE);
        assert_eq!(cluster.sent, 1, "{cluster:?}");
    });
}

#[test]
fn f29_in_a_storm_of_throttling_nothing_is_taken_for_proof_and_the_pod_moves_after_it() {
    each_seed(|cluster| {
        cluster.weather = Weather::Throttled;
        cluster.cut_off();
        cluster.run(10 * MINUTE);
        assert!(!cluster.is_tainted(), "{cluster:?}");
        assert_eq!(cluster.sent, 0, "{cluster:?}");
        cluster.power(Power::Stopped);
        cluster.run(20 * MINUTE);
        cluster.weather = Weather::Clear;
        // The longest pause between two tries of external-attacher, and what a failover takes.
        cluster.until_moved(8 * MINUTE);
    });
}

#[test]
fn f30_an_instance_that_ec2_knows_only_at_times_keeps_its_volume_while_it_runs() {
    each_seed(|cluster| {
        cluster.weather = Weather::Flapping;
        cluster.cut_off();
        cluster.run(60 * MINUTE);
        assert!(!cluster.is_tainted(), "{cluster:?}");
        assert_eq!((cluster.sent, cluster.pods_deleted), (0, 0), "{cluster:?}");
        cluster.power(Power::Stopped);
        cluster.until_moved(10 * MINUTE);
    });
}

#[test]
fn f42_after_ten_minutes_without_an_api_server_nodes_that_were_not_heard_of_are_not_dead() {
    each_seed(|cluster| {
        cluster.api(false);
        cluster.run(10 * MINUTE);
        cluster.api(true);
        cluster.run(10 * MINUTE);
        assert!(!cluster.is_tainted(), "{cluster:?}");
        assert_eq!((cluster.sent, cluster.pods_deleted), (0, 0), "{cluster:?}");
    });
}

#[test]
fn f42_an_instance_that_died_while_the_api_server_was_away_is_failed_over_after_it() {
    each_seed(|cluster| {
        cluster.api(false);
        cluster.run(5 * MINUTE);
        cluster.power(Power::Stopped);
        cluster.run(5 * MINUTE);
        assert_eq!(cluster.sent, 0, "{cluster:?}");
        cluster.api(true);
        cluster.until_moved(3 * MINUTE);
    });
}
