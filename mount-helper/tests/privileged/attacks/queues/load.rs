//! Many volumes are restored at once, with slow checks, while as many healthy volumes are used.
//!
//! This command runs the test in full and prints how long the calls took: `LOAD_VOLUMES=200 cargo
//! test --release -p ebs-csi-mount-helper --test privileged load:: -- --nocapture`.
use super::{MEMORY, image, most_memory, release_tools, send_for_each};
use crate::rig::{Client, LONG, Rig, done, staged, staging, target, usage};
use ebs_csi_wire::{FsType, Operation, Outcome, VolumeId};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of volumes of each kind, unless `LOAD_VOLUMES` gives another.
const SLICE: usize = 12;
/// Time by which each check is prolonged.
const HELD_FOR: Duration = Duration::from_millis(500);
/// Number of connections over which healthy volumes are used, as an agent uses several.
const USERS: usize = 8;
/// How long the test waits for one check among many, where kubelet would repeat its request.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

struct Times(Vec<(&'static str, Duration)>);

impl Times {
    /// Sends a request, and records how long the answer took.
    fn call(&mut self, client: &mut Client, operation: Operation) -> Outcome {
        let (name, begun) = (operation.properties().name, Instant::now());
        let outcome = client.call(operation, LONG);
        self.0.push((name, begun.elapsed()));
        outcome
    }

    /// Prints one line for each operation, and returns the longest time of all.
    fn print(mut self) -> Duration {
        self.0.sort();
        for calls in self.0.chunk_by(|one, next| one.0 == next.0) {
            let at = |percent: usize| calls[(calls.len() - 1) * percent / 100].1;
            println!(
                "load: {:<20} {:>5} calls  p50 {:>9.2?}  p99 {:>9.2?}  max {:>9.2?}",
                calls[0].0,
                calls.len(),
                at(50),
                at(99),
                at(100)
            );
        }
        let longest = self.0.iter().map(|(_, took)| *took).max();
        longest.unwrap_or_default()
    }
}

/// Asks for statistics, publishes and unpublishes the volume, and asks for statistics again. Each
/// request must succeed at its first attempt.
fn use_once(rig: &Rig, client: &mut Client, volume: &VolumeId, times: &mut Times) {
    let target = target(volume, "p");
    usage(times.call(client, rig.stats_operation(volume, &staging(volume))));
    done(times.call(client, rig.publish_operation(volume, "p")));
    usage(times.call(client, rig.stats_operation(volume, &target)));
    done(times.call(client, rig.unpublish_operation(volume, &target)));
}

#[test]
fn healthy_volumes_stay_usable_during_many_restores() {
    let volumes = std::env::var("LOAD_VOLUMES").map_or(SLICE, |n| n.parse().expect("a number"));
    let Some(mut rig) = Rig::start() else { return };
    let (clean, unclean) = (image(&rig, "clean", true), image(&rig, "unclean", false));
    let healthy: Vec<_> = (0..volumes).map(|_| rig.attach_copy(&clean)).collect();
    for (volume, _) in &healthy {
        staged(rig.stage(volume, FsType::Ext4));
    }
    let restored: Vec<_> = (0..volumes).map(|_| rig.attach_copy(&unclean)).collect();
    rig.restart(&["--fault-point", "tool-started", "--grace", "0"]);
    let releaser = release_tools(&rig, HELD_FOR);
    let begun = Instant::now();
    let mut clients = send_for_each(&rig, &restored, CALL_TIMEOUT, |volume| {
        rig.stage_operation(volume, FsType::Ext4)
    });
    rig.wait_for_point("tool-started");
    // The healthy volumes are used repeatedly until the last check is done.
    let (left, times) = (AtomicUsize::new(1), Mutex::new(Times(Vec::new())));
    let checked = std::thread::scope(|scope| {
        for user in 0..USERS {
            let (rig, healthy, left, times) = (&rig, &healthy, &left, &times);
            scope.spawn(move || {
                let (mut client, mut own) = (rig.client(), Times(Vec::new()));
                let mut first = true;
                while first || left.load(Ordering::Relaxed) > 0 {
                    first = false;
                    for (volume, _) in healthy.iter().skip(user).step_by(USERS) {
                        use_once(rig, &mut client, volume, &mut own);
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                times.lock().expect("times").0.extend(own.0);
            });
        }
        let answers: Vec<_> = clients.iter_mut().map(Client::receive).collect();
        left.store(0, Ordering::Relaxed);
        answers
    });
    drop(releaser);
    let took = begun.elapsed();
    for answer in checked {
        assert!(staged(answer.expect("an answer")).checked);
    }
    let most = most_memory(&rig);
    let times = times.into_inner().expect("times");
    let calls = times.0.len();
    let longest = times.print();
    println!(
        "load: {volumes} restored in {took:.1?}, the broker had at most {} KiB of memory, \
         the longest of {calls} calls for healthy volumes took {longest:.0?}",
        most >> 10
    );
    assert!(most < MEMORY, "{most}");
    let mut client = rig.client();
    for (volume, _) in healthy.iter().chain(&restored) {
        done(client.call(rig.unstage_operation(volume, &staging(volume)), LONG));
    }
}
