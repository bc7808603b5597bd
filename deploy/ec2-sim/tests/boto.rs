//! boto3 from PyPI, as independent code, calls every action and parses every reply.

mod process;

use process::Process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a Python with boto3, which is installed once and kept in the target directory.
fn python() -> Result<PathBuf, String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boto");
    let python = dir.join("bin/python3");
    let works = |p: &Path| {
        let import = "import boto3; boto3.client('ec2', region_name='x').copy_volumes";
        let output = Command::new(p).args(["-c", import]).output();
        output.is_ok_and(|o| o.status.success())
    };
    if works(&python) {
        return Ok(python);
    }
    let run = |command: &mut Command| match command.output() {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => {
            let err = String::from_utf8_lossy(&o.stderr).into_owned();
            Err(err.lines().last().unwrap_or("").to_owned())
        }
        Err(e) => Err(e.to_string()),
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))
        .map_err(|e| format!("no virtual environment: {e}"))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "boto3>=1.41"];
    run(Command::new(&python).args(install))
        .map_err(|e| format!("boto3 cannot be installed: {e}"))?;
    if works(&python) {
        Ok(python)
    } else {
        Err("the installed boto3 does not know CopyVolumes".to_owned())
    }
}

#[test]
fn boto3_calls_every_action_and_knows_every_element() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let dir = tempfile::tempdir().expect("dir");
    let p = Process::serve(&dir.path().join("state"), &[]);
    let output = Command::new(python)
        .arg("-B")
        .arg("tests/boto/every_action.py")
        .arg(p.url())
        .arg(p.ready["control"].as_str().expect("control"))
        .args(ec2_sim::actions::names())
        .output()
        .expect("run");
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("every action: "), "{out}");
}
