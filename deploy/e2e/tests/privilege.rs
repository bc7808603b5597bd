//! Compares the rights of the live processes, as the kernel reports them, with the table of
//! `deploy/docs/architecture.md`.

use std::collections::HashSet;
use std::path::Path;

use ebs_csi_e2e::{Fixture, Lifecycle, LifecycleStep as Step, program, tool_at_work};
use ebs_csi_sandbox::audit;
use ebs_csi_sandbox::binaries::for_test;
use ebs_csi_sandbox::co::Claim;
use ebs_csi_sandbox::tier::Tier;

/// Returns the inodes of the sockets that a process has open.
fn sockets(pid: i32) -> HashSet<String> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return HashSet::new() };
    entries
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect()
}

/// Returns the open internet, packet and netlink sockets of a process (proc_pid_net(5)).
fn outward_sockets(pid: i32) -> Vec<String> {
    let open = sockets(pid);
    let mut found = Vec::new();
    for table in [
        "tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet", "netlink", "icmp", "icmp6",
        "udplite",
    ] {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) else {
            continue;
        };
        for line in text.lines().skip(1) {
            if line.split_ascii_whitespace().any(|word| open.contains(word)) {
                found.push(format!("{table}: {line}"));
            }
        }
    }
    found
}

fn environment(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn each_process_has_exactly_its_documented_rights() {
    let Some(fixture) = Fixture::start().await else { return };
    let mut volume = Lifecycle::new(&fixture, Claim::filesystem("pvc-privilege", "ext4", 10));
    fixture.take(&mut volume, Step::up_to(Step::Attach)).await;
    // The runner and the tool are checked while a disk is formatted.
    let ((), staged) = tokio::join!(
        async {
            let tool = tool_at_work::catch(&fixture.world.nodes[0]).await;
            check_rights(&fixture, true).await;
            drop(tool);
        },
        volume.step(Step::Stage)
    );
    fixture.must("stage", async { staged }).await;
    let rest = [Step::Publish, Step::Unpublish, Step::Unstage, Step::Detach];
    fixture.take(&mut volume, &rest).await;
    check_rights(&fixture, false).await;
    fixture.must("delete", fixture.co.delete(&volume.volume().unwrap().id)).await;
    fixture.finish().await;
}

async fn check_rights(fixture: &Fixture, tool_runs: bool) {
    let seen = audit::survey(&fixture.world).expect("every process runs");
    println!("{}", audit::table(&seen));
    let of_tool = if tool_runs { &[Tier::Runner, Tier::Tool][..] } else { &[] };
    for tier in Tier::ALWAYS_RUNNING.iter().chain(of_tool) {
        assert!(seen.iter().any(|process| process.tier == *tier), "no {} was seen", tier.name());
    }
    for process in &seen {
        let what = format!("{} of {}", process.tier.name(), process.place);
        assert!(process.deviations.is_empty(), "{what}: {}", process.deviations.join(", "));
        if process.tier == Tier::Controller {
            continue;
        }
        let outward = outward_sockets(process.pid);
        assert!(outward.is_empty(), "{what} has {outward:?}");
        let environment = environment(process.pid);
        for secret in [
            "AWS_ACCESS",
            "AWS_SECRET",
            "AWS_SESSION",
            "AWS_WEB_IDENTITY",
            "AWS_ROLE",
            "AWS_CONTAINER",
            "AWS_PROFILE",
            "KUBERNETES_",
            "AKIA",
        ] {
            assert!(!environment.contains(secret), "{what} was given {secret}");
        }
    }
    // Shows that the check above can find a socket: the controller does connect to EC2.
    let controller = fixture.world.controller.pid().unwrap();
    let is_found = !outward_sockets(controller).is_empty();
    assert!(is_found || !tool_runs, "no socket of the controller was found");
}

/// Runs the auditor. Returns its exit status and its output.
fn auditor(program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let ended = program::run(program::bare(program, arguments, &[]));
    (ended.status, ended.stdout + &ended.stderr)
}

#[tokio::test]
async fn auditor_reports_sandbox_flag_and_wrong_profiles() {
    let Some(binaries) = for_test(&["ebs-csi-policy"]) else { return };
    let program = binaries.path("ebs-csi-policy").unwrap();
    let Some(fixture) = Fixture::start().await else { return };
    let controller = fixture.world.controller.pid().unwrap().to_string();
    let agent = fixture.world.nodes[0].agent.pid().unwrap().to_string();
    let helper = fixture.world.nodes[0].helper.pid().unwrap().to_string();
    for (pid, profile) in [(&controller, "controller"), (&agent, "node-agent")] {
        let (status, output) = auditor(&program, &["audit", "--pid", pid, "--as", profile]);
        println!("{output}");
        assert_eq!(status, Some(0), "{profile}: {output}");
    }
    // The helper was started with --sandbox, which the auditor must report.
    let (status, output) = auditor(&program, &["audit", "--tree", &helper]);
    println!("{output}");
    assert_eq!(status, Some(1), "{output}");
    assert!(output.contains("sandbox"), "{output}");
    // The auditor also distinguishes the profiles.
    let (status, output) = auditor(&program, &["audit", "--pid", &helper, "--as", "node-agent"]);
    assert_eq!(status, Some(1), "{output}");
    let (status, output) = auditor(&program, &["audit", "--pid", &controller, "--as", "tool"]);
    assert_eq!(status, Some(1), "{output}");
    fixture.finish().await;
}
