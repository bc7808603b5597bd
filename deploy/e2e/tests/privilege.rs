//! Compares the rights of the live processes, as the kernel reports them, with the table of
//! `deploy/docs/architecture.md`.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};

use ebs_csi_e2e::{Life, LifecycleStep, Setting, setting, tool_at_work};
use ebs_csi_sandbox::audit;
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
    let Some(setting) = Setting::start().await else { return };
    let mut life = Life::of(&setting, Claim::filesystem("pvc-privilege", "ext4", 10));
    for step in [LifecycleStep::Create, LifecycleStep::Attach] {
        setting.must(&format!("{step:?}"), life.step(step)).await;
    }
    // The runner and the tool are checked while a disk is formatted.
    let (tool, staged) = tokio::join!(
        async {
            let tool = tool_at_work::catch(&setting.world.nodes[0]).await;
            look(&setting, true).await;
            drop(tool);
        },
        life.step(LifecycleStep::Stage)
    );
    let () = tool;
    setting.must("stage", async { staged }).await;
    for step in [
        LifecycleStep::Publish,
        LifecycleStep::Unpublish,
        LifecycleStep::Unstage,
        LifecycleStep::Detach,
    ] {
        setting.must(&format!("{step:?}"), life.step(step)).await;
    }
    look(&setting, false).await;
    setting.must("delete", setting.co.delete(&life.volume().unwrap().id)).await;
    setting.finish().await;
}

async fn look(setting: &Setting, tool_runs: bool) {
    let seen = audit::survey(&setting.world).expect("every process runs");
    println!("{}", audit::table(&seen));
    let deviations: Vec<String> = seen
        .iter()
        .filter(|process| !process.deviations.is_empty())
        .map(|process| {
            format!(
                "{} of {}: {}",
                process.tier.name(),
                process.place,
                process.deviations.join(", ")
            )
        })
        .collect();
    assert!(deviations.is_empty(), "{}", deviations.join("\n"));
    for tier in [
        Tier::Controller,
        Tier::NodeAgent,
        Tier::Supervisor,
        Tier::Broker,
        Tier::Directories,
        Tier::Opener,
    ] {
        assert!(seen.iter().any(|process| process.tier == tier), "no {} was seen", tier.name());
    }
    if tool_runs {
        for tier in [Tier::Runner, Tier::Tool] {
            assert!(
                seen.iter().any(|process| process.tier == tier),
                "no {} was seen while a disk was formatted",
                tier.name()
            );
        }
    }
    for process in &seen {
        if process.tier == Tier::Controller {
            continue;
        }
        let what = format!("{} of {}", process.tier.name(), process.place);
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
    let controller = setting.world.controller.pid().unwrap();
    assert!(
        !outward_sockets(controller).is_empty() || !tool_runs,
        "no socket of the controller was found"
    );
}

/// Runs the auditor. Returns its exit status and its output.
fn auditor(program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the auditor runs");
    let words = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code(), words)
}

#[tokio::test]
async fn auditor_reports_sandbox_flag_and_wrong_profiles() {
    let Some(binaries) = setting::binaries(&["ebs-csi-policy"]) else { return };
    let program = binaries.path("ebs-csi-policy").unwrap();
    let Some(setting) = Setting::start().await else { return };
    let controller = setting.world.controller.pid().unwrap().to_string();
    let agent = setting.world.nodes[0].agent.pid().unwrap().to_string();
    let helper = setting.world.nodes[0].helper.pid().unwrap().to_string();
    for (pid, profile) in [(&controller, "controller"), (&agent, "node-agent")] {
        let (status, words) = auditor(&program, &["audit", "--pid", pid, "--as", profile]);
        println!("{words}");
        assert_eq!(status, Some(0), "{profile}: {words}");
    }
    // The helper was started with --sandbox, which the auditor must report.
    let (status, words) = auditor(&program, &["audit", "--tree", &helper]);
    println!("{words}");
    assert_eq!(status, Some(1), "{words}");
    assert!(words.contains("sandbox"), "{words}");
    // The auditor also distinguishes the profiles.
    let (status, words) = auditor(&program, &["audit", "--pid", &helper, "--as", "node-agent"]);
    assert_eq!(status, Some(1), "{words}");
    let (status, words) = auditor(&program, &["audit", "--pid", &controller, "--as", "tool"]);
    assert_eq!(status, Some(1), "{words}");
    setting.finish().await;
}
