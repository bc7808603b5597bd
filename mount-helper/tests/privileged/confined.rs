//! The credentials and limits of each helper process, as the kernel shows them, and how the
//! processes start and end.
use crate::rig::{LONG, Rig, able, children, done, role, staged, status};
use ebs_csi_wire::{FsType, Operation};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Checks uids, gids, groups, and permitted, effective and bounding capabilities. The comparison
/// leaves out `SYS_RESOURCE`, which a host may not grant.
fn holds(pid: u32, ids: [&str; 3], permitted: u64, effective: u64) {
    const RESOURCE: u64 = 1 << 24;
    let capabilities =
        |field: &str| u64::from_str_radix(&status(pid, field), 16).expect("hex") & !RESOURCE;
    assert_eq!(status(pid, "Uid").replace('\t', " "), ids[0]);
    assert_eq!(status(pid, "Gid").replace('\t', " "), ids[1]);
    assert_eq!(status(pid, "Groups"), ids[2]);
    assert_eq!(capabilities("CapPrm"), permitted);
    assert_eq!(capabilities("CapEff"), effective);
    assert_eq!(capabilities("CapBnd"), permitted);
    assert_eq!(capabilities("CapInh"), 0);
    assert_eq!(capabilities("CapAmb"), 0);
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    assert_eq!(status(pid, "Seccomp"), "2");
}

const ADMIN: u64 = 1 << 21;
const SEARCH: u64 = 1 << 2;
const NOBODY: [&str; 3] = ["65525 65525 65525 65525", "65525 65525 65525 65525", ""];

#[test]
fn each_helper_process_has_expected_ids_and_capabilities() {
    let Some(rig) = Rig::start() else { return };
    holds(rig.pid(), NOBODY, 0, 0);
    holds(rig.part("broker"), ["65531 65531 65531 65531", "0 0 0 0", ""], ADMIN | SEARCH, ADMIN);
    holds(rig.part("directories"), ["0 0 0 0", "0 0 0 0", ""], 0, 0);
    let own = "65526 65526 65526 65526";
    holds(rig.part("opener"), [own, own, "6"], 0, 0);
    assert_eq!(status(rig.pid(), "Threads"), "1");
    // Every thread of the broker has the filter, not only the one that installed it.
    let broker = rig.part("broker");
    for task in fs::read_dir(format!("/proc/{broker}/task")).expect("tasks") {
        let text = fs::read_to_string(task.expect("task").path().join("status")).expect("status");
        assert!(text.contains("Seccomp:\t2"), "{text}");
        assert!(text.contains("NoNewPrivs:\t1"), "{text}");
        assert!(text.contains("CapEff:\t0000000000200000"), "{text}");
    }
}

#[test]
fn runner_and_tool_hold_only_their_disk() {
    if !able() {
        return;
    }
    for (point, depth) in [("runner-started", 1), ("tool-started", 2)] {
        let rig = Rig::start_with(&["--fault-point", point, "--grace", "0"]);
        let (volume, attached) = rig.new_disk(64 << 20);
        let mut client = rig.client();
        client.send(Operation::Stage(rig.staging(&volume, FsType::Ext4)), LONG);
        rig.wait_for(&format!("fault-point name={point}"));
        let runner = rig.part("runner");
        holds(runner, NOBODY, 0, 0);
        if depth == 2 {
            let tools = children(runner);
            assert_eq!(tools.len(), 1);
            holds(tools[0], NOBODY, 0, 0);
            // The tool has its disk and is about to become the program. The kernel sets the name
            // before the environment is complete, and the loader opens one library after another,
            // so only the final state counts.
            let end = Instant::now() + LONG;
            let (open, environment) = loop {
                let open = descriptors(tools[0]);
                let environment = fs::read(format!("/proc/{}/environ", tools[0]));
                let environment = environment.unwrap_or_default();
                let settled = status(tools[0], "Name") == "mke2fs"
                    && !environment.is_empty()
                    && open.len() == 4;
                if settled || Instant::now() > end {
                    break (open, environment);
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            let numbers: Vec<_> = open.iter().map(|(number, _)| number.as_str()).collect();
            assert_eq!(numbers, ["0", "1", "2", "3"], "{open:?}");
            assert!(open[3].1.ends_with(&attached.name), "{open:?}");
            assert!(open[..3].iter().all(|(_, to)| to.starts_with("pipe:")));
            let rest = environment
                .strip_prefix(b"LC_ALL=C\0TZ=UTC\0MALLOC_ARENA_MAX=4\0")
                .expect("a plain locale and zone");
            // mke2fs receives the time of the format.
            let time = rest.strip_prefix(b"E2FSPROGS_FAKE_TIME=").unwrap_or(b"");
            let number = time.strip_suffix(b"\0").unwrap_or(b"");
            assert!(
                rest.is_empty() || (!number.is_empty() && number.iter().all(u8::is_ascii_digit)),
                "{:?}",
                String::from_utf8_lossy(&environment)
            );
        }
    }
}

/// Returns the numbers of a process's open descriptors and what each one refers to. A descriptor
/// that is closed meanwhile is left out.
fn descriptors(pid: u32) -> Vec<(String, String)> {
    let mut open: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("fd")
        .flatten()
        .filter_map(|entry| {
            let to = fs::read_link(entry.path()).ok()?;
            Some((
                entry.file_name().to_string_lossy().into_owned(),
                to.to_string_lossy().into_owned(),
            ))
        })
        .collect();
    open.sort();
    open
}

/// While the broker still examines the disk, runner and tool process hold no descriptor of the disk
/// and have not executed mke2fs.
#[test]
fn early_format_process_has_no_disk_or_program() {
    if !able() {
        return;
    }
    // The runner forks the tool's process when the broker tells the runner to go on, between two
    // reads of the disk. On a slow machine the examination may end before the fork. Such a round
    // inspects the runner alone, and a later round may see the tool's process.
    for _ in 0..10 {
        let rig = Rig::start_with(&["--fault-point", "stage-looked", "--grace", "0"]);
        let (volume, attached) = rig.new_disk(64 << 20);
        let mut client = rig.client();
        client.send(Operation::Stage(rig.staging(&volume, FsType::Ext4)), LONG);
        rig.wait_for("fault-point name=stage-looked");
        let begun = Instant::now();
        let is_runner = |pid: &u32| role(*pid) == "runner";
        let runner = loop {
            if let Some(runner) = children(rig.pid()).into_iter().find(is_runner) {
                break runner;
            }
            assert!(begun.elapsed() < LONG, "no runner was started");
            std::thread::sleep(Duration::from_millis(1));
        };
        let begun = Instant::now();
        while children(runner).is_empty() && begun.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let tool = children(runner).first().copied();
        for pid in std::iter::once(runner).chain(tool) {
            holds(pid, NOBODY, 0, 0);
            assert_eq!(status(pid, "Name"), status(rig.pid(), "Name"));
            let open = descriptors(pid);
            assert!(open.iter().all(|(_, to)| !to.ends_with(&attached.name)), "{open:?}");
        }
        if tool.is_some() {
            return;
        }
    }
    println!("skipped: no look was slow enough for the tool's process to be there before it ended");
}

#[test]
fn sigterm_ends_all_processes_with_status_0() {
    let Some(mut rig) = Rig::start() else { return };
    let parts = children(rig.pid());
    assert_eq!(parts.len(), 3);
    let pid = rustix::process::Pid::from_raw(rig.pid().cast_signed()).expect("pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
    assert_eq!(rig.ended(), Some(0));
    for part in parts {
        assert_eq!(role(part), "gone");
    }
}

#[test]
fn a_stop_lets_the_running_operation_finish() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(512 << 20);
    let mut client = rig.client();
    client.send(Operation::Stage(rig.staging(&volume, FsType::Xfs)), LONG);
    // The operation has begun when its runner exists; on a fast machine it may also have ended by
    // then.
    while !rig.journal().contains(" tool ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_raw(rig.pid().cast_signed()).expect("pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
    assert_eq!(rig.ended(), Some(0));
    assert_eq!(rig.mounts(&attached), 1);
    rig.run(&[]);
    assert!(staged(rig.stage(&volume, FsType::Xfs)).already);
    done(rig.unstage(&volume));
}

#[test]
fn killing_any_helper_process_ends_all() {
    for part in ["supervisor", "broker", "directories", "opener"] {
        let Some(mut rig) = Rig::start() else { return };
        let (supervisor, parts) = (rig.pid(), children(rig.pid()));
        let victim = if part == "supervisor" { supervisor } else { rig.part(part) };
        let pid = rustix::process::Pid::from_raw(victim.cast_signed()).expect("pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
        assert_ne!(rig.ended(), Some(0), "{part}");
        for other in parts {
            while role(other) != "gone" {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

fn refused_start(arguments: &[&str], code: i32, words: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_ebs-csi-mount-helper"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("helper");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn invalid_start_options_fail_with_single_line_reason() {
    refused_start(&["--no-such-flag"], 64, "--no-such-flag");
    refused_start(&["--listen", "tcp://1.2.3.4"], 64, "unix:///PATH");
    let directory = tempfile::tempdir().expect("tempdir");
    let socket = format!("unix://{}/s", directory.path().display());
    refused_start(&["--listen", &socket, "--kubelet-root", "/no/such/root"], 78, "/no/such/root");
    let file = directory.path().join("file");
    fs::write(&file, "kept").expect("write");
    if able() {
        refused_start(
            &[
                "--listen",
                &format!("unix://{}", file.display()),
                "--kubelet-root",
                directory.path().to_str().expect("utf-8"),
            ],
            78,
            "file",
        );
        assert_eq!(fs::read_to_string(&file).expect("read"), "kept");
    }
}

#[test]
fn helper_without_cap_sys_admin_does_not_start() {
    if !able() {
        return;
    }
    let directory = tempfile::tempdir().expect("tempdir");
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"])
        .arg(env!("CARGO_BIN_EXE_ebs-csi-mount-helper"))
        .arg("--listen")
        .arg(format!("unix://{}/s", directory.path().display()))
        .arg("--kubelet-root")
        .arg(directory.path())
        .stdin(Stdio::null())
        .output()
        .expect("setpriv");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(77), "{text}");
    assert!(text.contains("CAP_SYS_ADMIN is needed"), "{text}");
}

/// Builds the command of a helper in a mount namespace of its own, on a kubelet root `$root` that a
/// script has prepared.
fn on_root(prepare: &str, root: &std::path::Path, more: &[&str]) -> Command {
    let script = format!("set -e; root=$1; shift; {prepare}; exec \"$@\"");
    // Ends a helper that serves although it should not.
    let mut command = Command::new("timeout");
    command
        .args(["60", "unshare"])
        .args(["--mount", "--propagation", "private", "/bin/sh", "-c"])
        .args([&script, "sh"])
        .arg(root)
        .arg(env!("CARGO_BIN_EXE_ebs-csi-mount-helper"))
        .arg("--listen")
        .arg(format!("unix://{}/s", root.display()))
        .arg("--kubelet-root")
        .arg(root)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Kubelet would not see mounts in such a namespace. The flag --allow-private-mounts permits the
/// start.
#[test]
fn helper_with_private_kubelet_mounts_does_not_start() {
    if !able() {
        return;
    }
    let directory = tempfile::tempdir().expect("tempdir");
    let root = directory.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o750)).expect("chmod");
    for made in ["plugins/kubernetes.io/csi", "pods"] {
        fs::create_dir_all(root.join(made)).expect("mkdir");
    }
    let shared = "mount --bind \"$root\" \"$root\"; mount --make-shared \"$root\"";
    let private_pods =
        "mount --bind \"$root/pods\" \"$root/pods\"; mount --make-private \"$root/pods\"";
    // The shell stays alive: when the last master of a slave mount is gone, the slave becomes a
    // private mount.
    let slave = format!(
        "{shared}; ended=0; unshare --mount --propagation slave \"$@\" || ended=$?; exit $ended"
    );
    let both = format!("{shared}; {private_pods}");
    for (prepare, place) in [
        (":", "plugins/kubernetes.io/csi"),
        // The propagation that a container with HostToContainer sees.
        (slave.as_str(), "plugins/kubernetes.io/csi"),
        (both.as_str(), "pods"),
    ] {
        let output = on_root(prepare, root, &[]).output().expect("unshare");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{prepare}: {text}");
        for words in [place, "Bidirectional", "--allow-private-mounts"] {
            assert!(text.contains(words), "{prepare}: {text}");
        }
        let errors = text.lines().filter(|line| line.contains(" error "));
        assert_eq!(errors.count(), 1, "{text}");
    }
    // The helper serves where the mounts are shared, and where a flag says that nobody else needs
    // the mounts.
    for (prepare, more) in [(shared, &[][..]), (":", &["--allow-private-mounts"][..])] {
        let mut helper =
            on_root(prepare, root, more).stderr(Stdio::piped()).spawn().expect("unshare");
        let lines = BufReader::new(helper.stderr.take().expect("stderr")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains(" supervisor ready "));
        let pid = rustix::process::Pid::from_child(&helper);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let status = helper.wait().expect("wait");
        assert!(ready, "{prepare} {more:?}: {status}");
    }
}
