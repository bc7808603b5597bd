//! The credentials and limits of each helper process, as the kernel shows them, and how the
//! processes start and end.
use crate::rig::{
    AGENT, Client, HELPER, LONG, Rig, able, check_profiles, children, connect, descriptors, done,
    role, send_signal, set_mode, staged, status, text, try_signal, wait_until,
};
use ebs_csi_policy::{SANDBOX, setting};
use ebs_csi_wire::{FsType, Hello, Operation, Outcome};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Checks uids, gids, groups, and permitted, effective and bounding capabilities. The comparison
/// leaves out `SYS_RESOURCE`, which a host may not grant.
fn check_credentials(pid: u32, ids: [&str; 3], permitted: u64, effective: u64) {
    const RESOURCE: u64 = 1 << 24;
    let capabilities =
        |field: &str| u64::from_str_radix(&status(pid, field), 16).expect("hex") & !RESOURCE;
    assert_eq!(status(pid, "Uid").replace('\t', " "), ids[0]);
    assert_eq!(status(pid, "Gid").replace('\t', " "), ids[1]);
    assert_eq!(status(pid, "Groups"), ids[2]);
    let sets = ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"].map(capabilities);
    assert_eq!(sets, [permitted, effective, permitted, 0, 0]);
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    assert_eq!(status(pid, "Seccomp"), "2");
}

const ADMIN: u64 = 1 << 21;
const SEARCH: u64 = 1 << 2;
const NOBODY: [&str; 3] = ["65525 65525 65525 65525", "65525 65525 65525 65525", ""];

#[test]
fn each_helper_process_has_expected_ids_and_capabilities() {
    let Some(rig) = Rig::start() else { return };
    check_credentials(rig.pid(), NOBODY, 0, 0);
    check_credentials(
        rig.part("broker"),
        ["65531 65531 65531 65531", "0 0 0 0", ""],
        ADMIN | SEARCH,
        ADMIN,
    );
    check_credentials(rig.part("directories"), ["0 0 0 0", "0 0 0 0", ""], 0, 0);
    let own = "65526 65526 65526 65526";
    check_credentials(rig.part("opener"), [own, own, "6"], 0, 0);
    assert_eq!(status(rig.pid(), "Threads"), "1");
    // Every thread of the broker has the filter, not only the one that installed it.
    let broker = rig.part("broker");
    for task in fs::read_dir(format!("/proc/{broker}/task")).expect("tasks") {
        let text = fs::read_to_string(task.expect("task").path().join("status")).expect("status");
        for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000200000"] {
            assert!(text.contains(line), "{text}");
        }
    }
}

/// A disk is staged, so that its descriptors and those of a format are there or were closed.
#[test]
fn each_process_is_as_its_profile_says() {
    let Some(rig) = Rig::start() else { return };
    let _staged = rig.staged_disk(64 << 20, FsType::Ext4);
    check_profiles(rig.pid());
}

#[test]
fn runner_and_tool_hold_only_their_disk() {
    for (point, depth) in [("runner-started", 1), ("tool-started", 2)] {
        let Some(rig) = Rig::start_held(point) else { return };
        let (volume, attached) = rig.new_disk(64 << 20);
        let _client = rig.call_until(point, rig.stage_operation(&volume, FsType::Ext4));
        let runner = rig.part("runner");
        check_credentials(runner, NOBODY, 0, 0);
        if depth == 2 {
            let tools = children(runner);
            assert_eq!(tools.len(), 1);
            check_credentials(tools[0], NOBODY, 0, 0);
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
            // Any other limit lets the kernel pass a dump to a handler.
            let limits = fs::read_to_string(format!("/proc/{}/limits", tools[0])).expect("limits");
            let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
            let core: Vec<_> = core.expect("a limit").split_whitespace().take(2).collect();
            assert_eq!(core, ["1", "1"]);
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

/// While the broker still examines the disk, runner and tool process hold no descriptor of the disk
/// and have not executed mke2fs.
#[test]
fn early_format_process_has_no_disk_or_program() {
    // The runner forks the tool's process when the broker tells the runner to go on, between two
    // reads of the disk. On a slow machine the examination may end before the fork. Such a round
    // inspects the runner alone, and a later round may see the tool's process.
    for _ in 0..10 {
        let Some(rig) = Rig::start_held("stage-looked") else { return };
        let (volume, attached) = rig.new_disk(64 << 20);
        let _client = rig.call_until("stage-looked", rig.stage_operation(&volume, FsType::Ext4));
        wait_until(|| "no runner was started".to_owned(), || rig.part_now("runner").is_some());
        let runner = rig.part("runner");
        let begun = Instant::now();
        while children(runner).is_empty() && begun.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let tool = children(runner).first().copied();
        for pid in std::iter::once(runner).chain(tool) {
            check_credentials(pid, NOBODY, 0, 0);
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
    send_signal(rig.pid(), Signal::TERM);
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
    client.send(rig.stage_operation(&volume, FsType::Xfs), LONG);
    // The operation has begun when its runner exists; on a fast machine it may also have ended by
    // then.
    rig.wait_for(" tool ");
    send_signal(rig.pid(), Signal::TERM);
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
        send_signal(victim, Signal::KILL);
        assert_ne!(rig.ended(), Some(0), "{part}");
        for other in parts {
            wait_until(|| format!("{part}: {other} is left"), || role(other) == "gone");
        }
    }
}

/// Checks that a command ends with this status, and returns what it wrote to standard error.
#[track_caller]
fn ends_with(command: &mut Command, code: i32) -> String {
    let output = command.stdin(Stdio::null()).output().expect("a helper");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
    text
}

fn refused_start(arguments: &[&str], code: i32, words: &str) {
    let text = ends_with(Command::new(HELPER).args(arguments), code);
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
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("/etc", &link).expect("symlink");
    let wide = "every program's configuration";
    refused_start(&["--listen", &socket, "--kubelet-root", text(&link)], 78, wide);
    let file = directory.path().join("file");
    fs::write(&file, "kept").expect("write");
    if able() {
        let (socket, root) = (format!("unix://{}", file.display()), text(directory.path()));
        refused_start(&["--listen", &socket, "--kubelet-root", root], 78, "file");
        assert_eq!(fs::read_to_string(&file).expect("read"), "kept");
    }
}

#[test]
fn helper_without_needed_capability_does_not_start() {
    if !able() {
        return;
    }
    let directory = tempfile::tempdir().expect("tempdir");
    let socket = directory.path().join("s");
    for (missing, words) in
        [("sys_admin", "CAP_SYS_ADMIN is needed"), ("setuid", ""), ("setpcap", "")]
    {
        let missing = format!("-{missing}");
        let text = ends_with(
            Command::new("setpriv")
                .args(["--bounding-set", &missing, "--inh-caps", &missing, HELPER])
                .args(["--listen", &format!("unix://{}", socket.display())])
                .args(["--sandbox", "--allow-private-mounts", "--kubelet-root"])
                .arg(directory.path()),
            77,
        );
        assert!(!text.trim().is_empty() && text.contains(words), "{missing}: {text}");
        let connected = std::os::unix::net::UnixStream::connect(&socket);
        assert!(connected.is_err(), "{missing}: somebody serves");
        let _ = fs::remove_file(&socket);
    }
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
        .args([HELPER, "--listen", &format!("unix://{}/s", root.display()), "--kubelet-root"])
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
    set_mode(root, 0o750);
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
        let text = ends_with(&mut on_root(prepare, root, &[]), 78);
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
        try_signal(helper.id(), Signal::TERM);
        let status = helper.wait().expect("wait");
        assert!(ready, "{prepare} {more:?}: {status}");
    }
}

#[test]
fn wider_settings_are_logged_and_change_digest() {
    let Some(rig) = Rig::start_with(&["--untrusted-images=allow", "--nodev-nosuid=on"]) else {
        return;
    };
    let mut client = Client::new(connect(&rig.socket(), AGENT));
    let outcome = client.call(Operation::Hello(Hello::OURS), Duration::ZERO);
    let Outcome::Welcome(welcome) = outcome else { panic!("{outcome:?}") };
    let root = format!("--kubelet-root={}", rig.path("kubelet").display());
    assert_eq!(welcome.wider, [root.as_str(), "--sandbox", "--untrusted-images=allow"]);
    let digest = setting::digest_in_force(&SANDBOX, &welcome.wider);
    assert_eq!(welcome.policy_digest, digest);
    assert_ne!(digest, SANDBOX.digest);
    let journal = rig.journal();
    let logged = journal.lines().find(|line| line.contains("wider-settings"));
    assert!(logged.is_some_and(|line| welcome.wider.iter().all(|one| line.contains(one))));
    assert!(journal.contains(&digest), "{journal}");
}
