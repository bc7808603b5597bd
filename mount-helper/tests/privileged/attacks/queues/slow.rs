//! Slow operations: checks, disks that never appear, file systems that hang.
use super::{MEMORY, MIB, Releaser, copy, image, most_memory};
use crate::attacks::row;
use crate::rig::{AGENT, Client, LONG, Rig, connect, done, staged, staging, target, volume};
use ebs_csi_wire::{FsType, Inspect, Operation, Outcome, Refusal, Stats};
use std::time::Duration;

const HELD: &str = "fault-point name=tool-started";
/// The number of checks that filled the pool when each check held a worker.
const SLOW: usize = 16;

#[test]
fn slow_filesystem_checks_do_not_block_healthy_volumes() {
    let Some(mut rig) = Rig::start() else { return };
    let (clean, unclean) = (image(&rig, "clean", true), image(&rig, "unclean", false));
    let (healthy, _attached) = copy(&rig, &clean);
    staged(rig.stage(&healthy, FsType::Ext4));
    rig.stop();
    rig.run(&["--fault-point", "tool-started", "--grace", "0"]);
    let slow: Vec<_> = (0..SLOW).map(|_| copy(&rig, &unclean)).collect();
    let mut askers: Vec<Client> = slow
        .iter()
        .map(|(volume, _)| {
            let mut client = rig.client();
            client.send(Operation::Stage(rig.staging(volume, FsType::Ext4)), LONG * 2);
            client
        })
        .collect();
    rig.wait_for_more(HELD, 3);
    let inspect = Operation::Inspect(Inspect::default());
    let Outcome::Inventory(inventory) = rig.ask(inspect) else {
        panic!("inventory expected");
    };
    assert_eq!(inventory.operations.len(), SLOW);
    // Quick operations still proceed.
    let usage = rig.stats(&healthy, &staging(&healthy));
    assert!(matches!(usage, Outcome::Usage(_)), "{usage:?}");
    for pod in ["a", "b"] {
        done(rig.publish(&healthy, pod));
        done(rig.unpublish(&healthy, &target(&healthy, pod)));
    }
    done(rig.unstage(&healthy));
    // The stage of a volume that needs no tool proceeds as well.
    staged(rig.stage(&healthy, FsType::Ext4));
    done(rig.unstage(&healthy));
    assert_eq!(rig.journal().matches(HELD).count(), 4, "tools at once");
    let releaser = Releaser::start(&rig, Duration::ZERO);
    for client in &mut askers {
        assert!(staged(client.receive().expect("an answer")).checked);
    }
    drop(releaser);
    for (volume, _) in &slow {
        done(rig.unstage(volume));
    }
    row(
        "N10",
        "16 checks, of which 4 run and 12 wait for a place",
        "statistics, publish, unpublish, unstage and stage of a healthy volume are done meanwhile, then all checks",
    );
}

#[test]
fn request_flood_is_bounded_and_others_are_served() {
    const FLOOD: usize = 20_000;
    let Some(rig) = Rig::start() else { return };
    let clean = image(&rig, "clean", true);
    let (healthy, _attached) = copy(&rig, &clean);
    staged(rig.stage(&healthy, FsType::Ext4));
    let absent = || Operation::Stage(rig.staging(&volume(), FsType::Ext4));
    let flooding = Client::greeted(connect(&rig.socket(), AGENT));
    let mut writing = Client::new(flooding.stream.try_clone().expect("clone"));
    let mut reading = flooding;
    let (mut busy, mut pending) = (0, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..FLOOD {
                writing.send_as(
                    u64::try_from(number).expect("small") + 2,
                    absent(),
                    Duration::ZERO,
                );
            }
        });
        for _ in 0..FLOOD {
            match reading.receive().expect("an answer") {
                Outcome::Pending => pending += 1,
                Outcome::Refused(refused) if refused.reason == Refusal::Busy => busy += 1,
                other => panic!("{other:?}"),
            }
        }
        writer.join().expect("writer");
    });
    let most = most_memory(&rig);
    println!("flood: {pending} pending, {busy} busy, at most {most} bytes of memory");
    assert!(most < MEMORY, "{most}");
    assert!(busy > FLOOD / 2, "{busy}");
    // While the operations of the flood still wait, other requests are served, including stages.
    let mut client = rig.client();
    let stats =
        Operation::Stats(Stats { volume: healthy.clone(), path: rig.kubelet(&staging(&healthy)) });
    let usage = client.ask(stats, LONG);
    assert!(matches!(usage, Outcome::Usage(_)), "{usage:?}");
    done(rig.publish(&healthy, "p"));
    done(rig.unpublish(&healthy, &target(&healthy, "p")));
    done(rig.unstage(&healthy));
    staged(rig.stage(&healthy, FsType::Ext4));
    let Outcome::Inventory(inventory) = rig.ask(Operation::Inspect(Inspect::default())) else {
        panic!("inventory expected");
    };
    assert!(!inventory.operations.is_empty(), "the flood is over");
    done(rig.unstage(&healthy));
    row(
        "N11",
        "20,000 stages of absent volumes on one connection, with wait 0",
        &format!(
            "{busy} are told busy, the broker never takes more than {} MiB, and a healthy volume is served",
            most / MIB + 1
        ),
    );
}
