//! Worlds start and end without a trace, however they end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ebs_csi_sandbox::binaries::{Binaries, OF_WORLD, for_test};
use ebs_csi_sandbox::co::Claim;
use ebs_csi_sandbox::{World, WorldOptions};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

/// Returns everything that mentions `directory`: mounts, loop devices, and the directory itself.
fn traces(directory: &Path) -> Vec<String> {
    let name = directory.file_name().unwrap().to_str().unwrap();
    let mut found: Vec<String> = std::fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .filter(|line| line.contains(name))
        .map(str::to_owned)
        .collect();
    for entry in std::fs::read_dir("/sys/block").unwrap().flatten() {
        if let Ok(file) = std::fs::read_to_string(entry.path().join("loop/backing_file"))
            && file.contains(name)
        {
            found.push(file);
        }
    }
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(words) = std::fs::read(entry.path().join("cmdline"))
            && String::from_utf8_lossy(&words).contains(name)
        {
            found.push(String::from_utf8_lossy(&words).into_owned());
        }
    }
    if directory.exists() {
        found.push(directory.display().to_string());
    }
    found
}

#[tokio::test]
async fn world_without_devices_serves_controller_and_cleans_up() {
    let Some(binaries) = for_test(&["ebs-csi-sandbox", "ec2-sim", "ebs-csi-controller"]) else {
        return;
    };
    let mut options = WorldOptions::new(binaries);
    options.devices = "none".to_owned();
    let world = World::start(options).await.unwrap();
    let co = world.co().unwrap();
    let volume = co.create(&Claim::filesystem("pvc-1", "ext4", 1)).await.unwrap();
    let again = co.create(&Claim::filesystem("pvc-1", "ext4", 1)).await.unwrap();
    assert_eq!(volume.id, again.id);
    let attachment = co.attach(&volume, "i-0aaaaaaaaaaaaaaa1").await.unwrap();
    assert!(attachment["devicePath"].starts_with("/dev/xvd"));
    co.detach(&volume.id, "i-0aaaaaaaaaaaaaaa1").await.unwrap();
    co.delete(&volume.id).await.unwrap();
    let directory = world.state_dir().to_owned();
    let ended = world.shutdown().await.unwrap();
    assert_eq!(ended.leftovers, Vec::<String>::new());
    assert_eq!(ended.killed, Vec::<String>::new());
    assert_eq!(traces(&directory), Vec::<String>::new());
}

#[tokio::test]
async fn dropped_world_is_cleaned_by_keeper() {
    let Some(binaries) = for_test(&OF_WORLD) else { return };
    let world = World::start(WorldOptions::new(binaries)).await.unwrap();
    let directory = world.state_dir().to_owned();
    assert!(!traces(&directory).is_empty());
    drop(world);
    assert_eq!(traces(&directory), Vec::<String>::new());
}

/// Starts `ebs-csi-sandbox up` and waits until it is up. Returns the process and its state
/// directory.
async fn up() -> Option<(Child, PathBuf)> {
    let program = for_test(&OF_WORLD)?.path("ebs-csi-sandbox").unwrap();
    let mut child = tokio::process::Command::new(program)
        .arg("up")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut directory = None;
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some(log) = line.strip_prefix("logs") {
            directory = Path::new(log.trim()).parent().map(Path::to_owned);
        }
        if line.contains("ctrl-c") {
            break;
        }
    }
    let directory = directory.expect("up prints where the logs are");
    assert!(!traces(&directory).is_empty());
    Some((child, directory))
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Starts a world and ends it with `signal`. Returns its state directory and exit code.
async fn killed_by(signal: Signal) -> Option<(PathBuf, Option<i32>)> {
    let (mut child, directory) = up().await?;
    send(child.id().unwrap(), signal);
    let status = child.wait().await.unwrap();
    Some((directory, status.code()))
}

#[tokio::test]
async fn sigterm_ends_world_with_0_and_no_traces() {
    let Some((directory, code)) = killed_by(Signal::TERM).await else { return };
    assert_eq!(code, Some(0));
    assert_eq!(traces(&directory), Vec::<String>::new());
}

#[tokio::test]
async fn keeper_cleans_world_after_sigkill_of_its_maker() {
    let Some((directory, code)) = killed_by(Signal::KILL).await else { return };
    assert_eq!(code, None);
    let mut left = traces(&directory);
    for _ in 0..600 {
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        left = traces(&directory);
    }
    panic!("left: {left:?}");
}

#[tokio::test]
async fn clean_removes_world_of_killed_maker_and_keeper() {
    let Some((mut child, directory)) = up().await else { return };
    let maker = child.id().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{maker}/task/{maker}/children")).unwrap();
    let keeper = children
        .split_ascii_whitespace()
        .map(|pid| pid.parse::<u32>().unwrap())
        .find(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            String::from_utf8_lossy(&words).contains("keep")
        })
        .expect("the keeper is a child");
    send(keeper, Signal::KILL);
    send(maker, Signal::KILL);
    child.wait().await.unwrap();
    assert!(!traces(&directory).is_empty(), "processes and mounts outlive both");
    let program = Binaries::of_this_build().unwrap().path("ebs-csi-sandbox").unwrap();
    let output =
        tokio::process::Command::new(program).arg("clean").arg(&directory).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(traces(&directory), Vec::<String>::new());
}
