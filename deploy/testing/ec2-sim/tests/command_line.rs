//! The real process: usage errors, signals, and the state directory.

mod process;

use process::{Process, binary, text};

const CREATE: &str = "Action=CreateVolume&AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3";

#[test]
fn used_state_directory_is_refused_until_cleaned() {
    let dir = tempfile::tempdir().expect("dir");
    let state = dir.path().join("state");
    let p = Process::serve(&state, &[]);
    let volume = text(&p.call(CREATE), "volumeId");
    p.wait_for(&volume, "<status>available</status>");
    let refused = |wanted: &str| {
        let mut again = binary();
        let again = again.args(["serve", "--state-dir"]).arg(&state).output();
        let again = again.expect("run");
        let why = String::from_utf8_lossy(&again.stderr);
        assert_eq!(again.status.code(), Some(1), "{why}");
        assert!(why.contains(wanted), "{why}");
    };
    refused("in use");
    assert_eq!(p.terminate(), Some(0));
    std::fs::create_dir(state.join("volumes")).expect("mkdir");
    refused("ec2-sim clean");
    let output = process::run(binary().args(["clean", "--state-dir"]).arg(&state));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), r#"{"cleared":[],"held":[]}"#);
    assert!(!state.exists(), "nothing is left");
}

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
        (vec!["serve", "--state-dir", state, "--listen", "0.0.0.0:0"], 64),
        (vec!["serve", "--state-dir", state, "--scenario", bad], 78),
        (vec!["serve", "--state-dir", state, "--scenario", "/nonexistent.toml"], 78),
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
