//! boto3 from PyPI, as independent code, calls every action and parses every reply; its model of
//! EC2 shows which parameters the simulator lacks. moto, which simulates EC2, too, answers some of
//! the calls for comparison.

mod process;

use process::Process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A Python with boto3, which is kept in the target directory.
struct Python {
    program: PathBuf,
    /// Why boto3 may not be the newest.
    outdated: Option<String>,
    /// Why moto cannot be used.
    without_moto: Option<String>,
}

/// What a script needs besides boto3.
#[derive(PartialEq)]
enum Need {
    Nothing,
    NewestBoto3,
    Moto,
}

/// A role that trusts the tokens of one issuer.
const SCENARIO: &str = r#"{"iam": {"principals": [{"arn": "arn:aws:iam::111122223333:role/driver",
    "trust": {"Version": "2012-10-17", "Statement": {"Effect": "Allow",
        "Principal": {"Federated": "arn:aws:iam::111122223333:oidc-provider/oidc.example.com"},
        "Action": "sts:AssumeRoleWithWebIdentity"}}}]}}"#;

fn run(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => {
            let err = String::from_utf8_lossy(&o.stderr).into_owned();
            Err(err.lines().last().unwrap_or("").to_owned())
        }
        Err(e) => Err(e.to_string()),
    }
}

fn install() -> Result<Python, String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boto");
    let program = dir.join("bin/python3");
    if run(Command::new(&program).arg("--version")).is_err() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))
            .map_err(|e| format!("no virtual environment: {e}"))?;
    }
    let pip = |arguments: &str| {
        let options = ["-m", "pip", "--quiet", "--disable-pip-version-check", "--retries", "1"];
        run(Command::new(&program).args(options).args(arguments.split(' ')))
    };
    // An upgrade alone succeeds without PyPI, too.
    let outdated = pip("index versions boto3")
        .and_then(|()| pip("install --upgrade boto3"))
        .map_err(|e| format!("the newest boto3 cannot be installed: {e}"))
        .err();
    let import = "import boto3; boto3.client('ec2', region_name='x').copy_volumes";
    let without_moto = pip("install --upgrade moto[ec2]")
        .and_then(|()| run(Command::new(&program).args(["-c", "import moto"])))
        .map_err(|e| format!("moto cannot be installed: {e}"))
        .err();
    match run(Command::new(&program).args(["-c", import])) {
        Ok(()) => Ok(Python { program, outdated, without_moto }),
        Err(e) => Err(outdated.unwrap_or_else(|| format!("boto3 does not know CopyVolumes: {e}"))),
    }
}

/// Runs a script against a new simulator, with this argument behind the endpoint, and returns what
/// the script prints. Returns `None`, and prints the reason, where it cannot be run.
fn script(name: &str, need: Need, argument: impl FnOnce(&Process) -> String) -> Option<String> {
    static PYTHON: OnceLock<Result<Python, String>> = OnceLock::new();
    let python = match PYTHON.get_or_init(install) {
        Ok(Python { outdated: Some(why), .. }) if need == Need::NewestBoto3 => Err(why),
        Ok(Python { without_moto: Some(why), .. }) if need == Need::Moto => Err(why),
        Ok(python) => Ok(python),
        Err(why) => Err(why),
    };
    let python = python.map_err(|why| println!("skipped: {why}")).ok()?;
    let dir = tempfile::tempdir().expect("dir");
    let scenario = dir.path().join("scenario.json");
    std::fs::write(&scenario, SCENARIO).expect("scenario");
    let scenario = scenario.to_str().expect("text");
    let p = Process::serve(&dir.path().join("state"), &["--scenario", scenario]);
    let output = Command::new(&python.program)
        .arg("-B")
        .arg(Path::new("tests/boto").join(name))
        .arg(p.url())
        .arg(argument(&p))
        .args(ec2_sim::examples().map(|(name, example)| format!("{name}?{example}")))
        .output()
        .expect("run");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}\n{err}");
    Some(out)
}

#[test]
fn boto3_calls_every_action_and_knows_every_element() {
    let control = |p: &Process| p.ready["control"].as_str().expect("control").to_owned();
    let Some(out) = script("every_action.py", Need::Nothing, control) else { return };
    assert!(out.contains("every action: "), "{out}");
}

#[test]
fn moto_answers_snapshot_set_in_same_form() {
    let Some(out) = script("moto_judge.py", Need::Moto, |_| String::new()) else { return };
    assert!(out.contains("moto agrees"), "{out}");
}

/// A parameter that EC2 adds later is printed and does not fail the test.
#[test]
fn parameters_refused_as_unknown_have_a_reason() {
    let reasons = |_: &Process| "tests/boto/refused_parameters.toml".to_owned();
    let Some(out) = script("parameters.py", Need::NewestBoto3, reasons) else { return };
    print!("{out}");
    assert!(out.contains("actions compared"), "{out}");
}
