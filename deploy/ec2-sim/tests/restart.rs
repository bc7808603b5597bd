//! The real process: usage errors, signals, and kill -9.

mod process;

use process::{NODE_A, Process, binary, text};

const CREATE: &str = "Action=CreateVolume&AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3";

/// Kills follow a create, an attach and a detach; tokens, ids and attachments survive each.
#[test]
fn killed_simulator_resumes_from_its_state_directory() {
    let dir = tempfile::tempdir().expect("dir");
    let state = dir.path().join("state");
    let p = Process::serve(&state, &["--devices", "file"]);
    let volume = text(&p.call(&format!("{CREATE}&ClientToken=t")), "volumeId");
    p.kill();

    let p = Process::serve(&state, &["--devices", "file"]);
    let again = p.call(&format!("{CREATE}&ClientToken=t"));
    assert_eq!(text(&again, "volumeId"), volume, "the token is remembered");
    p.wait_for(&volume, "<status>available</status>");
    p.call(&format!(
        "Action=AttachVolume&VolumeId={volume}&InstanceId={NODE_A}&Device=/dev/xvdba"
    ));
    p.kill();

    let p = Process::serve(&state, &["--devices", "file"]);
    p.wait_for(&volume, "<status>attached</status>");
    let link = state.join("dev").join(NODE_A).join("xvdba");
    assert!(link.exists());
    let snapshot = text(
        &p.call(&format!("Action=CreateSnapshot&VolumeId={volume}")),
        "snapshotId",
    );
    p.call(&format!("Action=DetachVolume&VolumeId={volume}"));
    p.kill();

    let p = Process::serve(&state, &["--devices", "file"]);
    p.wait_for(&volume, "<status>available</status>");
    assert!(!link.exists());
    p.call(&format!("Action=DeleteVolume&VolumeId={volume}"));
    p.call(&format!("Action=DeleteSnapshot&SnapshotId={snapshot}"));
    let other = text(&p.call(CREATE), "volumeId");
    assert_ne!(other, volume, "no id is issued twice");
    assert_eq!(p.terminate(), Some(0));

    let p = Process::serve(&state, &["--devices", "file"]);
    let state_now = p.control.get("/v1/state").expect("state");
    let ids: Vec<&str> = state_now["realms"][0]["volumes"]
        .as_array()
        .expect("volumes")
        .iter()
        .filter(|v| v["root"] == false && v["status"] != "deleting")
        .filter_map(|v| v["id"].as_str())
        .collect();
    assert_eq!(ids, [other.as_str()]);
    assert_eq!(state_now["realms"][0]["snapshots"], serde_json::json!([]));
    assert_eq!(
        state_now["realms"][0]["instances"].as_array().map(Vec::len),
        Some(2),
        "instances are made once"
    );
    assert_eq!(
        p.control.get("/v1/invariants").expect("invariants")["ok"],
        true
    );
    assert_eq!(p.terminate(), Some(0));

    let output = process::run(binary().args(["clean", "--state-dir"]).arg(&state));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        r#"{"cleared":[],"held":[]}"#
    );
    assert!(!state.exists(), "nothing is left");
}

/// A usage error prints exactly one line; `--help` and `--version` exit with 0.
#[test]
fn usage_and_scenario_errors_exit_64_and_78() {
    let dir = tempfile::tempdir().expect("dir");
    let bad = dir.path().join("bad.toml");
    std::fs::write(&bad, "sed = 1\n").expect("write");
    let state = dir.path().join("state");
    let (bad, state) = (bad.to_str().expect("utf-8"), state.to_str().expect("utf-8"));
    for (arguments, code) in [
        (vec![], 64),
        (vec!["serve"], 64),
        (vec!["serve", "--state-dir", state, "--devices", "tape"], 64),
        (
            vec!["serve", "--state-dir", state, "--listen", "0.0.0.0:0"],
            64,
        ),
        (
            vec!["serve", "--state-dir", state, "--control", "tcp:1"],
            64,
        ),
        (vec!["serve", "--state-dir", state, "--scenario", bad], 78),
        (
            vec![
                "serve",
                "--state-dir",
                state,
                "--scenario",
                "/nonexistent.toml",
            ],
            78,
        ),
        (vec!["serve", "--state-dir", state, "--profile", "slow"], 78),
        (vec!["clean", "--state-dir", "/nonexistent"], 1),
        (vec!["--help"], 0),
        (vec!["--version"], 0),
    ] {
        let output = binary().args(&arguments).output().expect("run");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
        if code == 64 {
            assert_eq!(err.lines().count(), 1, "{arguments:?}: {err}");
        }
    }
}
