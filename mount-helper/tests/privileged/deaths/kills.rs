//! A table of each named step of each operation and of each process that is killed at the step: a
//! repeated request succeeds. The test prints the table.
use crate::rig::{
    Attached, LONG, Rig, able, block_target, children, done, grows_mounted, shell, staged, staging,
    target, volume,
};
use ebs_csi_wire::{FsType, Operation, Outcome, PublishBlock, Unpublish, Unstage, VolumeId};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("pid");
    kill_process(pid, signal).expect("kill");
}

fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

/// The requests of a volume's life.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ask {
    Stage(FsType),
    /// The stage of an ext4 that was not unmounted cleanly.
    Check,
    /// The stage of an ext4 whose disk has grown.
    Grow,
    Publish,
    PublishBlock,
    Unpublish,
    Unstage,
    Expand,
}

fn operation(rig: &Rig, ask: Ask, volume: &VolumeId) -> Operation {
    match ask {
        Ask::Stage(fs) => Operation::Stage(rig.staging(volume, fs)),
        Ask::Check | Ask::Grow => Operation::Stage(rig.staging(volume, FsType::Ext4)),
        Ask::Publish => Operation::PublishFilesystem(rig.publishing(volume, "p")),
        Ask::PublishBlock => Operation::PublishBlock(PublishBlock {
            disk: crate::rig::disk(volume),
            target: rig.kubelet(&block_target(volume, "p")),
            read_only: false,
        }),
        Ask::Unpublish => Operation::Unpublish(Unpublish {
            volume: volume.clone(),
            target: rig.kubelet(&target(volume, "p")),
        }),
        Ask::Unstage => Operation::Unstage(Unstage {
            volume: volume.clone(),
            staging: rig.kubelet(&staging(volume)),
        }),
        Ask::Expand => Operation::Expand(ebs_csi_wire::Expand {
            volume: volume.clone(),
            path: rig.kubelet(&staging(volume)),
            required_bytes: None,
            limit_bytes: None,
        }),
    }
}

/// Returns the requests that must precede this one, and the number of the device's mounts after its
/// success.
fn around(ask: Ask) -> (Vec<Ask>, usize) {
    match ask {
        Ask::Stage(_) => (vec![], 1),
        Ask::Check | Ask::Grow => (vec![Ask::Stage(FsType::Ext4), Ask::Unstage], 1),
        Ask::Publish => (vec![Ask::Stage(FsType::Ext4)], 2),
        Ask::PublishBlock => (vec![], 0),
        Ask::Unpublish => (vec![Ask::Stage(FsType::Ext4), Ask::Publish], 1),
        Ask::Unstage => (vec![Ask::Stage(FsType::Ext4)], 0),
        Ask::Expand => (vec![Ask::Stage(FsType::Xfs)], 1),
    }
}

#[track_caller]
fn succeeded(what: &str, outcome: &Outcome) {
    assert!(
        !matches!(outcome, Outcome::Refused(_) | Outcome::Failed(_) | Outcome::Pending),
        "{what}: {outcome:?}"
    );
}

/// The killed processes. The agent's death is the end of its connection, after which the operation
/// continues.
const VICTIMS: [&str; 7] =
    ["agent", "supervisor", "broker", "directories", "opener", "runner", "tool"];

/// Returns whether the fault point of this step holds a runner.
fn in_a_runner(point: &str) -> bool {
    matches!(point, "runner-started" | "tool-started" | "runner-finished")
}

fn there((ask, point): (Ask, &str), victim: &str) -> bool {
    // Where the host allows it, the kernel grows the mounted file system, and no tool runs.
    if ask == Ask::Grow && point != "stage-grown" && grows_mounted() {
        return false;
    }
    match victim {
        // A growth runs two tools, and the fault point would hold each of them until a signal.
        "agent" => ask != Ask::Grow || !in_a_runner(point),
        "runner" => in_a_runner(point),
        "tool" => point == "tool-started",
        _ => true,
    }
}

/// Brings the disk to the state that the request needs.
fn prepare(ask: Ask, attached: &Attached) {
    match ask {
        Ask::Check => {
            shell("debugfs", &["-w", "-R", "ssv state 0", &attached.path()]);
        }
        Ask::Expand | Ask::Grow => attached.resize(512 * MIB),
        _ => {}
    }
}

/// The kernel grows the file system after the mount, where the host allows it.
#[test]
fn restarted_helper_completes_stage_killed_after_growth() {
    for victim in ["supervisor", "broker", "directories"] {
        survives(Ask::Grow, "stage-grown", victim);
    }
    // Printed for the console of the virtual machine.
    println!("killed once it grew, mounted: {}", grows_mounted());
}

/// Holds the operation at a step, kills one process there, and repeats the request. A new helper
/// answers it where the kill has ended the helper.
fn survives(ask: Ask, point: &str, victim: &str) {
    let (before, mounts) = around(ask);
    let Some(mut rig) = Rig::start() else { return };
    let volume = volume();
    // mkfs.xfs refuses much smaller disks.
    let attached = rig.attach(&volume, 320 * MIB);
    for earlier in before {
        succeeded("before", &rig.ask(operation(&rig, earlier, &volume)));
    }
    prepare(ask, &attached);
    rig.stop();
    rig.run(&["--fault-point", point]);
    let mut client = rig.client();
    client.send(operation(&rig, ask, &volume), LONG);
    rig.wait_for(&format!("fault-point name={point}"));
    let runner = in_a_runner(point).then(|| rig.part("runner"));
    match victim {
        "agent" => {
            drop(client);
            send(runner.unwrap_or_else(|| rig.part("broker")), Signal::USR1);
        }
        "supervisor" | "broker" | "directories" | "opener" => {
            kill(if victim == "supervisor" { rig.pid() } else { rig.part(victim) });
            assert_ne!(rig.ended(), Some(0));
            // A runner that is released finds no peer and ends. When the broker was killed, the
            // supervisor has ended the runners.
            if let Some(runner) = runner.filter(|_| victim == "supervisor") {
                send(runner, Signal::USR1);
            }
        }
        _ => {
            let runner = runner.expect("a step of a runner");
            kill(if victim == "tool" { children(runner)[0] } else { runner });
            if victim == "tool" {
                // The fault point holds the runner itself, so the runner is killed as well.
                kill(runner);
            }
            let outcome = client.receive().expect("an answer");
            assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
            rig.stop();
        }
    }
    if victim == "agent" {
        // The step has passed. A new agent connects, and finds the result or joins the running
        // operation.
        assert!(matches!(
            rig.ask(Operation::Inspect(ebs_csi_wire::Inspect::default())),
            Outcome::Inventory(_)
        ));
    } else {
        rig.run(&[]);
    }
    let what = format!("{ask:?} {point} {victim}");
    succeeded(&what, &rig.ask(operation(&rig, ask, &volume)));
    assert_eq!(rig.mounts(&attached), mounts, "{what}");
    // Each effect can be undone, even one that happened twice.
    done(rig.unpublish(&volume, &target(&volume, "p")));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
    done(rig.unstage(&volume));
    assert_eq!(rig.mounts(&attached), 0);
}

const STAGE: Ask = Ask::Stage(FsType::Ext4);
const XFS: Ask = Ask::Stage(FsType::Xfs);

/// Each fault point of `src`, with an operation that reaches it.
const STEPS: [(Ask, &str); 28] = [
    (STAGE, "stage-found"),
    (STAGE, "stage-looked"),
    (STAGE, "runner-started"),
    (STAGE, "tool-started"),
    (STAGE, "runner-finished"),
    (STAGE, "stage-made"),
    (STAGE, "stage-formatted"),
    (STAGE, "stage-prepared"),
    (STAGE, "stage-created"),
    (STAGE, "stage-attached"),
    (XFS, "runner-started"),
    (XFS, "tool-started"),
    (XFS, "runner-finished"),
    (XFS, "stage-formatted"),
    (Ask::Check, "tool-started"),
    (Ask::Check, "stage-checked"),
    (Ask::Grow, "tool-started"),
    (Ask::Grow, "stage-marked"),
    (Ask::Grow, "stage-grown"),
    (Ask::Publish, "publish-made"),
    (Ask::Publish, "publish-attached"),
    (Ask::PublishBlock, "publish-block-made"),
    (Ask::PublishBlock, "publish-block-attached"),
    (Ask::Expand, "expand-grown"),
    (Ask::Unpublish, "unpublish-unmounted"),
    (Ask::Unstage, "unstage-synced"),
    (Ask::Unstage, "unstage-unmounted"),
    (Ask::Unstage, "unstage-removed"),
];

/// After a kill of any process at any step, the repeated request has the same result as without the
/// kill.
#[test]
fn retried_request_converges_after_kill_at_any_step() {
    if !able() {
        return;
    }
    let todo: Vec<_> = STEPS
        .iter()
        .flat_map(|(ask, point)| VICTIMS.map(|victim| (*ask, *point, victim)))
        .filter(|(ask, point, victim)| there((*ask, point), victim))
        .collect();
    let todo = Mutex::new(todo);
    let converged = Mutex::new(BTreeMap::new());
    // Each of these threads waits for processes most of the time.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = todo.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some((ask, point, victim)) = next else {
                        return;
                    };
                    survives(ask, point, victim);
                    let mut converged = converged.lock().unwrap_or_else(PoisonError::into_inner);
                    converged.insert((format!("{ask:?} {point}"), victim), "converged");
                }
            });
        }
    });
    let converged = converged.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{:<40}{}", "killed at", VICTIMS.map(|v| format!("{v:<12}")).concat());
    for (ask, point) in &STEPS {
        let name = format!("{ask:?} {point}");
        let cells = VICTIMS.map(|victim| {
            let cell = converged.get(&(name.clone(), victim)).unwrap_or(&"-");
            format!("{cell:<12}")
        });
        println!("{name:<40}{}", cells.concat());
    }
    let cells = STEPS
        .iter()
        .flat_map(|step| VICTIMS.into_iter().filter(move |victim| there(*step, victim)));
    assert_eq!(converged.len(), cells.count());
}

/// The table leaves out no step: its names are those in the program's source.
#[test]
fn kill_table_lists_every_fault_point() {
    let src = std::path::PathBuf::from(
        std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo"),
    )
    .join("src");
    let mut named = std::collections::BTreeSet::new();
    let mut folders = vec![src];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("src") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).expect("a source");
            for rest in text.split("fault_point::reached(\"").skip(1) {
                named.insert(rest.split('"').next().unwrap_or_default().to_owned());
            }
        }
    }
    let listed: std::collections::BTreeSet<_> =
        STEPS.iter().map(|(_, point)| (*point).to_owned()).collect();
    assert_eq!(named, listed);
}

#[test]
fn tool_ends_when_its_runner_is_killed() {
    if !able() {
        return;
    }
    let mut rig = Rig::start_with(&["--fault-point", "tool-started", "--grace", "0"]);
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let mut client = rig.client();
    client.send(Operation::Stage(rig.staging(&volume, FsType::Ext4)), LONG);
    rig.wait_for("fault-point name=tool-started");
    let runner = rig.part("runner");
    let tool = children(runner)[0];
    kill(runner);
    while std::path::Path::new(&format!("/proc/{tool}/exe")).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.stop();
    rig.run(&[]);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}
