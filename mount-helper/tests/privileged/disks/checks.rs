//! A check that does not succeed fails the stage, and the next stage repeats the check: no
//! unchecked file system is mounted.
use crate::rig::{
    Attached, Client, LONG, MIB, Rig, become_user, children, done, send_signal, set_mode, shell,
    staged, text, wait_until, write_synced,
};
use ebs_csi_wire::{Failed, FsType, Outcome, Refusal, Step, ToolEnd, VolumeId};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::fs;
use std::path::PathBuf;

const TOOL: u32 = ebs_csi_policy::profile::TOOL.identity.uid;
const HELD: &str = "fault-point name=tool-started";

fn unclean(rig: &Rig) -> (VolumeId, Attached) {
    let (volume, attached) = rig.formatted_disk(512 * MIB, FsType::Ext4);
    let script = rig.path("outside/debugfs");
    fs::write(&script, "feature needs_recovery\nssv state 0\n").expect("write");
    shell("debugfs", &["-w", "-f", text(&script), &attached.path()]);
    (volume, attached)
}

/// Requests a stage and holds its checker before the checker's first open. Returns the client, the
/// runner and the checker.
fn held(rig: &Rig, volume: &VolumeId) -> (Client, u32, u32) {
    let before = rig.journal().matches(HELD).count();
    let mut client = rig.client();
    client.send(rig.stage_operation(volume, FsType::Ext4), LONG);
    rig.wait_for_more(HELD, before);
    let runner = rig.part("runner");
    let tool = children(runner)[0];
    // Until then, it has the signal handlers of the runner.
    let name = || fs::read_to_string(format!("/proc/{tool}/comm")).unwrap_or_default();
    wait_until(|| format!("no checker, but {}", name()), || name() == "e2fsck\n");
    (client, runner, tool)
}

/// The name of a case, what is done to the checker, and the tool ends that the stage may report.
type Row<'r> = (&'r str, &'r dyn Fn(u32), &'r [ToolEnd]);

fn signalled(signal: u8) -> ToolEnd {
    ToolEnd::Signalled(signal.try_into().expect("a signal"))
}

fn exited(status: u8) -> ToolEnd {
    ToolEnd::Exited(status.try_into().expect("a status"))
}

/// Lowers a limit of a tool. The tool's own user may do so, and root only where the machine grants
/// CAP_SYS_RESOURCE.
fn limit(tool: u32, resource: Resource, most: u64) {
    let pid = Pid::from_raw(tool.cast_signed());
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    std::thread::spawn(move || {
        become_user(TOOL, &[]);
        prlimit(pid, resource, limit).expect("prlimit");
    })
    .join()
    .expect("thread");
}

/// A checker that ends before it begins changes nothing on the disk, and a repeated stage runs the
/// checker again.
#[test]
fn killed_or_memory_starved_checker_leaves_disk_unmounted() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = unclean(&rig);
    let dirty = fs::read(&attached.image).expect("image");
    rig.restart(&["--fault-point", "tool-started"]);
    let rows: [Row<'_>; 6] = [
        ("killed, as for want of memory", &|tool| send_signal(tool, Signal::KILL), &[signalled(9)]),
        ("a bug in it", &|tool| send_signal(tool, Signal::SEGV), &[signalled(11), exited(8)]),
        ("aborted", &|tool| send_signal(tool, Signal::ABORT), &[signalled(6), exited(8)]),
        ("out of processor time", &|tool| send_signal(tool, Signal::XCPU), &[signalled(24)]),
        // With 64 KiB the loader finds no memory, and with 256 KiB the program finds none.
        (
            "64 KiB of memory",
            &|tool| limit(tool, Resource::Data, 64 << 10),
            &[exited(127), signalled(11)],
        ),
        (
            "256 KiB of memory",
            &|tool| limit(tool, Resource::Data, 256 << 10),
            &[exited(8), exited(127), signalled(11)],
        ),
    ];
    for (what, act, expected) in rows {
        let (mut client, runner, tool) = held(&rig, &volume);
        act(tool);
        send_signal(runner, Signal::USR1);
        let outcome = client.receive().expect("an answer");
        println!("{what}: {outcome:?}");
        let Outcome::Failed(Failed { step: Step::Check, tool: Some(end), .. }) = outcome else {
            panic!("{what}: {outcome:?}");
        };
        assert!(expected.contains(&end), "{what}: {end:?}");
        assert_eq!(rig.mounts(&attached), 0, "{what}");
    }
    assert!(
        fs::read(&attached.image).expect("image") == dirty,
        "a checker that was ended before it began changed nothing"
    );
    let (mut client, runner, _) = held(&rig, &volume);
    send_signal(runner, Signal::USR1);
    assert!(staged(client.receive().expect("an answer")).checked);
    done(rig.unstage(&volume));
}

#[test]
fn checker_past_deadline_is_ended_and_retry_succeeds() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = unclean(&rig);
    rig.restart(&["--fault-point", "tool-started", "--tool-deadline", "1"]);
    let (mut client, runner, tool) = held(&rig, &volume);
    send_signal(tool, Signal::STOP);
    send_signal(runner, Signal::USR1);
    let outcome = client.receive().expect("an answer");
    assert!(
        matches!(outcome, Outcome::Failed(Failed { step: Step::ToolDeadline, .. })),
        "{outcome:?}"
    );
    assert_eq!(rig.mounts(&attached), 0);
    rig.restart(&[]);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).checked);
    done(rig.unstage(&volume));
}

/// Returns a program of a few instructions that exits with a status.
#[cfg(target_arch = "x86_64")]
fn ends_with(status: u8) -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend(0x40_0078_u64.to_le_bytes());
    elf.extend(64_u64.to_le_bytes());
    elf.extend([0; 8]);
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // One segment: the whole file, readable and executable.
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for number in [0, 0x40_0000, 0x40_0000, 0x86, 0x86, 0x1000_u64] {
        elf.extend(number.to_le_bytes());
    }
    // mov edi, status; mov eax, exit_group; syscall
    elf.extend([0xbf, status, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05]);
    elf
}

#[cfg(target_arch = "x86_64")]
fn replace(rig: &Rig, tool: &str) -> PathBuf {
    let program = rig.path("outside/tool");
    fs::write(&program, ends_with(0)).expect("write");
    set_mode(&program, 0o755);
    rig.within(&["mount", "--bind", text(&program), tool]);
    program
}

#[cfg(target_arch = "x86_64")]
#[test]
fn unexpected_e2fsck_status_fails_stage_without_mount() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = unclean(&rig);
    // The helper is stopped first, because it determines the file of each tool at its start.
    rig.stop();
    let program = replace(&rig, "/usr/sbin/e2fsck");
    rig.run(&[]);
    // Bit 2 asks for a restart of the machine whose root file system was checked; 16: wrong usage;
    // 32: cancelled; 128: an error of a library.
    for status in [3, 5, 7, 8, 12, 16, 32, 126, 127, 128, 137, 255] {
        // Writes the file in place, because the bind mount shows the file, not its name.
        fs::write(&program, ends_with(status)).expect("write");
        assert_eq!(
            rig.stage(&volume, FsType::Ext4),
            Outcome::Failed(Failed {
                step: Step::Check,
                errno: None,
                tool: Some(exited(status)),
                node: None,
            }),
            "{status}"
        );
        assert_eq!(rig.mounts(&attached), 0, "{status}");
    }
    rig.stop();
    // A process that copies the mount namespace at this moment keeps the mount busy.
    rig.within(&["umount", "--lazy", "/usr/sbin/e2fsck"]);
    rig.run(&[]);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).checked);
    done(rig.unstage(&volume));
}

/// A checker that ends with status 1 may have found damage, or no memory: only a log that is known
/// to need it is replayed.
#[cfg(target_arch = "x86_64")]
#[test]
fn failed_xfs_check_changes_no_disk() {
    let Some(mut rig) = Rig::start() else { return };
    let (origin, attached) = rig.made_disk(512 * MIB, FsType::Xfs);
    staged(rig.stage(&origin, FsType::Xfs));
    write_synced(&rig.staged_root(&origin).join("kept"), "synced");
    let (copy, second) = rig.attach_copy(&attached.image);
    done(rig.unstage(&origin));
    let before = fs::read(&second.image).expect("image");
    rig.stop();
    let program = replace(&rig, "/usr/sbin/xfs_repair");
    rig.run(&[]);
    for status in [1, 2, 3, 4, 31, 127, 137] {
        fs::write(&program, ends_with(status)).expect("write");
        match rig.stage_copy(&copy, FsType::Xfs) {
            Outcome::Refused(refused) if status == 1 => {
                assert_eq!(refused.reason, Refusal::FilesystemErrors);
            }
            Outcome::Failed(failed) if status != 1 => {
                assert_eq!((failed.step, failed.tool), (Step::Check, Some(exited(status))));
            }
            other => panic!("{status}: {other:?}"),
        }
        assert_eq!(rig.mounts(&second), 0, "{status}");
        assert!(fs::read(&second.image).expect("image") == before, "{status}");
    }
}
