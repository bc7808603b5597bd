//! Request rates: how a burst is spread, what the driver learns from throttling, and which calls
//! wait for which. The tests use virtual time, so the machine's speed does not matter.

use std::collections::BTreeMap;
use std::time::Duration;

use ebs_csi_ec2::{
    Action, Call, Ec2, Ec2ErrorKind, Ec2Settings, Force, LaneLevel, Rate, Sent, WatchedChange,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::in_process::InProcess;
use crate::world::{available, small};
use crate::{device, nobody, node_a};

/// Returns how many requests of an action reached EC2, and how many of them EC2 throttled.
fn calls(world: &InProcess, action: &str) -> (usize, usize) {
    let wanted = format!("Action={action}&");
    let log = world.log_lines();
    let of_action = || log.iter().filter(|line| line.contains(&wanted));
    let throttled = of_action().filter(|line| line.contains(" 503 "));
    (of_action().count(), throttled.count())
}

fn level(ec2: &Ec2, wanted: Action) -> LaneLevel {
    let mut levels = ec2.lane_levels().into_iter();
    let found = levels.find(|(action, _)| *action == wanted);
    found.expect("every action has a lane").1
}

/// Returns a world without limits, and an access that keeps to a configured maximum for an action.
async fn limited(action: Action, capacity: f64, refill: f64) -> (InProcess, Ec2) {
    let world = InProcess::new(json!({ "profile": "fast" }));
    let max_rates = BTreeMap::from([(action, Rate { capacity, refill })]);
    let ec2 = world.access_with(Ec2Settings { max_rates, ..Ec2Settings::default() }).await;
    (world, ec2)
}

/// Creates volumes at once while EC2 grants one rate of CreateVolume and the driver assumes
/// another.
async fn burst(granted: Value, believed: Rate, volumes: usize) -> (InProcess, Ec2) {
    let world = InProcess::new(json!({
        "profile": "fast",
        "limits": { "enabled": true, "scale": 1.0, "actions": { "CreateVolume": granted } },
    }));
    let rates = BTreeMap::from([(Action::CreateVolume, believed)]);
    let settings = Ec2Settings { rates, ..Ec2Settings::default() };
    let ec2 = world.access_with(settings).await;
    let tasks: Vec<_> = (0..volumes)
        .map(|n| {
            let (ec2, call) = (ec2.clone(), Call::until(Instant::now() + Duration::from_secs(600)));
            tokio::spawn(async move {
                let volume = small(&format!("pvc-{n}"));
                ec2.create_volume(&call, &volume).await.map(drop)
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    (world, ec2)
}

#[tokio::test(start_paused = true)]
async fn burst_beyond_bucket_is_spread_with_few_throttles() {
    // A burst of 20 calls and then 50 a second, so that the test needs a tenth of the real time.
    let believed = Rate { capacity: 20.0, refill: 50.0 };
    let begun = Instant::now();
    let (world, _) = burst(json!({ "capacity": 20, "refill": 50 }), believed, 150).await;
    let (calls, throttled) = calls(&world, "CreateVolume");
    assert_eq!(calls - throttled, 150);
    // A few calls are throttled when the bucket first runs empty.
    assert!(throttled <= 4, "{throttled} of {calls} were throttled");
    // The driver uses the granted rate: 20 at once and 130 at 50 a second.
    assert!(begun.elapsed() < Duration::from_secs(4));
}

/// EC2 grants 40 calls a second where the driver assumes 200, as when other clients use the rest.
#[tokio::test(start_paused = true)]
async fn lower_granted_rate_is_learned_and_calls_succeed() {
    // The driver assumes 200 a second; EC2 grants 40 and almost no burst.
    let believed = Rate { capacity: 400.0, refill: 200.0 };
    let (world, ec2) = burst(json!({ "capacity": 5, "refill": 40 }), believed, 200).await;
    let level = level(&ec2, Action::CreateVolume);
    assert!(level.refill < 200.0, "{level:?}");
    let (calls, throttled) = calls(&world, "CreateVolume");
    assert_eq!(calls - throttled, 200);
    assert!(throttled > 0);
}

#[tokio::test(start_paused = true)]
async fn higher_granted_rate_is_found_and_used() {
    // EC2 grants ten times the assumed rate: 200 at once and 500 a second.
    let believed = Rate { capacity: 20.0, refill: 50.0 };
    let begun = Instant::now();
    let (world, ec2) = burst(json!({ "capacity": 200, "refill": 500 }), believed, 1000).await;
    let (calls, throttled) = calls(&world, "CreateVolume");
    assert_eq!(calls - throttled, 1000);
    assert!(throttled <= 20, "{throttled} of {calls} were throttled");
    // The minimum is 1.6 s; at the assumed rate it would be 19.6 s.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    let level = level(&ec2, Action::CreateVolume);
    assert!(level.refill > 200.0, "{level:?}");
}

#[tokio::test(start_paused = true)]
async fn configured_max_rate_holds_below_ec2_limit() {
    let (world, ec2) = limited(Action::DeleteVolume, 10.0, 5.0).await;
    let begun = Instant::now();
    for _ in 0..30 {
        let _ = ec2.delete_volume(&Call::default(), &nobody()).await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(4));
    assert_eq!(calls(&world, "DeleteVolume").1, 0);
}

#[tokio::test(start_paused = true)]
async fn an_attach_does_not_wait_behind_detaches() {
    let (_world, ec2) = limited(Action::DetachVolume, 2.0, 1.0).await;
    let volume = ec2.create_volume(&Call::default(), &small("a")).await.unwrap();
    let far = Instant::now() + Duration::from_secs(60);
    ec2.watch_volume(&Call::default(), &volume.id, WatchedChange::Creation, far, available)
        .await
        .unwrap();
    let detaches: Vec<_> = (0..300)
        .map(|_| {
            let (ec2, id) = (ec2.clone(), volume.id.clone());
            tokio::spawn(async move {
                ec2.detach_volume(&Call::default(), &id, &node_a(), Force::No, Instant::now())
                    .await
                    .map(drop)
            })
        })
        .collect();
    let waiting = || level(&ec2, Action::DetachVolume).waiting;
    // All calls take their place in the queue.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = waiting();
    assert!(before > 290, "{before}");
    ec2.attach_volume(&Call::default(), &volume.id, &node_a(), &device(), None).await.unwrap();
    assert!(waiting() > 290, "the detaches are still waiting");
    for detach in detaches {
        detach.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn call_waiting_past_deadline_is_not_sent() {
    let (world, ec2) = limited(Action::DeleteVolume, 1.0, 0.001).await;
    let call = Call::until(Instant::now() + Duration::from_millis(300));
    // Either the reserve keeps the only token, or the first call takes it.
    let _ = ec2.delete_volume(&call, &nobody()).await;
    let before = calls(&world, "DeleteVolume");
    let error = ec2.delete_volume(&call, &nobody()).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (Ec2ErrorKind::Deadline, Sent::Not));
    assert_eq!(calls(&world, "DeleteVolume"), before);
}
