//! Slow operations: checks, disks that never appear, file systems that hang.
use super::{MEMORY, image, most_memory, release_tools, send_for_each};
use crate::rig::{
    Client, LONG, MIB, Rig, children, done, role, shell, sparse_file, staged, staging, status,
    target, text, usage, volume, wait_until,
};
use ebs_csi_wire::{FsType, Outcome, Refusal};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

const HELD: &str = "fault-point name=tool-started";
/// The number of checks that filled the pool when each check held a worker.
const SLOW: usize = 16;

/// N10: 16 checks, of which 4 run and 12 wait for a place.
#[test]
fn slow_filesystem_checks_do_not_block_healthy_volumes() {
    let Some(mut rig) = Rig::start() else { return };
    let (clean, unclean) = (image(&rig, "clean", true), image(&rig, "unclean", false));
    let (healthy, _attached) = rig.attach_copy(&clean);
    staged(rig.stage(&healthy, FsType::Ext4));
    rig.restart(&["--fault-point", "tool-started", "--grace", "0"]);
    let slow: Vec<_> = (0..SLOW).map(|_| rig.attach_copy(&unclean)).collect();
    let mut clients =
        send_for_each(&rig, &slow, LONG * 2, |volume| rig.stage_operation(volume, FsType::Ext4));
    rig.wait_for_more(HELD, 3);
    assert_eq!(rig.inventory().operations.len(), SLOW);
    // Quick operations still proceed.
    usage(rig.stats(&healthy, &staging(&healthy)));
    for pod in ["a", "b"] {
        done(rig.publish(&healthy, pod));
        done(rig.unpublish(&healthy, &target(&healthy, pod)));
    }
    done(rig.unstage(&healthy));
    // The stage of a volume that needs no tool proceeds as well.
    rig.stage_once(&healthy, FsType::Ext4);
    assert_eq!(rig.journal().matches(HELD).count(), 4, "tools at once");
    let releaser = release_tools(&rig, Duration::ZERO);
    for client in &mut clients {
        assert!(staged(client.receive().expect("an answer")).checked);
    }
    drop(releaser);
    for (volume, _) in &slow {
        done(rig.unstage(volume));
    }
}

/// N10: `e2fsck` waits until it knows that no other node has the file system (`mmp`), here for
/// minutes.
#[test]
fn formats_do_not_wait_for_checks_that_sleep() {
    const ASLEEP: usize = 6;
    let Some(rig) = Rig::start_with(&["--grace", "0"]) else { return };
    let image = mounted_elsewhere(&rig);
    let sleeping: Vec<_> = (0..ASLEEP).map(|_| rig.attach_copy(&image)).collect();
    let _clients =
        send_for_each(&rig, &sleeping, LONG, |volume| rig.stage_operation(volume, FsType::Ext4));
    wait_until(|| format!("{} checks run", checks(&rig)), || checks(&rig) == 4);
    let fresh: Vec<_> = (0..6).map(|_| rig.new_disk(64 * MIB)).collect();
    let mut formats =
        send_for_each(&rig, &fresh, LONG, |volume| rig.stage_operation(volume, FsType::Ext4));
    for client in &mut formats {
        assert!(staged(client.receive().expect("an answer")).formatted);
    }
    assert_eq!(rig.inventory().operations.len(), ASLEEP, "the checks are over");
    for (volume, _) in &fresh {
        done(rig.unstage(volume));
    }
}

/// Creates an image of an ext4 that another node seems to have mounted, for a check that sleeps.
fn mounted_elsewhere(rig: &Rig) -> PathBuf {
    let image = rig.path("outside/mmp");
    sparse_file(&image, 64 * MIB);
    let features = ["-t", "ext4", "-b", "4096", "-O", "mmp,^metadata_csum"];
    let interval = ["-E", "mmp_update_interval=100"];
    shell("mke2fs", &[&["-q", "-F"], &features[..], &interval, &[text(&image)]].concat());
    let file = fs::File::options().read(true).write(true).open(&image).expect("image");
    // The state of the superblock, which has the number of the block for mmp as well. The second
    // word of that block counts while the file system is mounted.
    file.write_all_at(&[0, 0], 1024 + 0x3a).expect("write");
    let mut block = [0; 8];
    file.read_exact_at(&mut block, 1024 + 0x168).expect("read");
    file.write_all_at(&5_u32.to_le_bytes(), u64::from_le_bytes(block) * 4096 + 4).expect("write");
    image
}

fn checks(rig: &Rig) -> usize {
    let runners = children(rig.pid()).into_iter().filter(|pid| role(*pid) == "runner");
    let tools = runners.flat_map(children);
    tools.filter(|pid| status(*pid, "Name") == "e2fsck").count()
}

/// N11: 20,000 stages of absent volumes on one connection, with wait 0.
#[test]
fn request_flood_is_bounded_and_others_are_served() {
    const FLOOD: usize = 20_000;
    let Some(rig) = Rig::start() else { return };
    let clean = image(&rig, "clean", true);
    let (healthy, _attached) = rig.attach_copy(&clean);
    staged(rig.stage(&healthy, FsType::Ext4));
    let absent = || rig.stage_operation(&volume(), FsType::Ext4);
    let mut reading = rig.client();
    let mut writing = Client::new(reading.stream.try_clone().expect("clone"));
    let (mut busy, mut pending) = (0, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..FLOOD {
                writing.send_as(number as u64 + 2, absent(), Duration::ZERO);
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
    usage(client.call(rig.stats_operation(&healthy, &staging(&healthy)), LONG));
    done(rig.publish(&healthy, "p"));
    rig.withdraw(&healthy, "p");
    staged(rig.stage(&healthy, FsType::Ext4));
    assert!(!rig.inventory().operations.is_empty(), "the flood is over");
    done(rig.unstage(&healthy));
}
