//! What runs in a process namespace of its own, where `--all` sees the test's processes alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::running::{ISOLATED, Running, audit, check};
use crate::stand_in::STAND_IN;
use crate::{AS_PROFILE, AUDITOR, BAD_USAGE, Case, DEVIATES, NOT_SEEN, TestResult, expect};

pub(crate) const CASES: &[(&str, Case)] =
    &[("whole-node", whole_node), ("replaced-program", replaced_program), ("collected", collected)];

/// What runs on a node, each a stand-in with its arguments, and the rules that `--all` names.
struct Node {
    helper: &'static [&'static str],
    agent: &'static [&'static str],
    controller: &'static str,
    rules: &'static [&'static str],
}

const GOOD: Node =
    Node { helper: &["supervisor"], agent: &["node-agent"], controller: "controller", rules: &[] };

const NODES: &[Node] = &[
    GOOD,
    Node {
        helper: &["supervisor-of-capability-too-many"],
        rules: &["directories/capabilities"],
        ..GOOD
    },
    Node { helper: &["supervisor-of-call-too-many"], rules: &["directories/system-calls"], ..GOOD },
    Node { helper: &["supervisor-of-group-too-many"], rules: &["directories/groups"], ..GOOD },
    Node {
        helper: &["supervisor", "--paths", "any"],
        rules: &[
            "supervisor/settings",
            "broker/settings",
            "directories/settings",
            "opener/settings",
        ],
        ..GOOD
    },
    Node { agent: &["connected", "--http-endpoint=:9808"], rules: &["node-agent/sockets"], ..GOOD },
    Node {
        controller: "thread",
        rules: &[
            "controller/capabilities",
            "controller/group",
            "controller/no-new-privs",
            "controller/system-calls",
            "controller/user",
        ],
        ..GOOD
    },
];

fn whole_node() -> TestResult {
    for Node { helper, agent, controller, rules } in NODES {
        let _running = [
            Running::helper(ISOLATED, helper[0], 4, &helper[1..])?,
            Running::of("ebs-csi-node-agent", agent)?,
            Running::start(controller, &[])?,
        ];
        let status = if rules.is_empty() { AS_PROFILE } else { DEVIATES };
        audit(&["--all"])?.is(status, rules)?;
    }
    Ok(())
}

fn replaced_program() -> TestResult {
    audit(&["--all"])?.is(NOT_SEEN, &["machine/processes"])?;
    let place = tempfile::tempdir()?;
    let program = place.path().join("ebs-csi-controller");
    fs::copy(std::env::current_exe()?, &program)?;
    let mut command = Command::new(&program);
    let process = Running::spawn(command.args([STAND_IN, "controller"]), 1)?;
    let audited = audit(&["--all"])?;
    audited.is(AS_PROFILE, &[])?;
    audited.says(AS_PROFILE, &[" ebs-csi-controller "])?;
    fs::rename(&program, place.path().join("other"))?;
    let renamed = ["controller/program"];
    process.audit_as("controller")?.is(NOT_SEEN, &renamed)?;
    audit(&["--tree", &process.pid()])?.is(NOT_SEEN, &["machine/processes"])?;
    audit(&["--all"])?.is(NOT_SEEN, &["machine/processes"])?;
    fs::rename(place.path().join("other"), &program)?;
    fs::write(place.path().join("new"), "")?;
    fs::rename(place.path().join("new"), &program)?;
    audit(&["--all"])?.is(NOT_SEEN, &renamed)?;
    process.audit_as("controller")?.is(NOT_SEEN, &renamed)?;
    // Another user is shown neither the program nor the threads.
    let auditor = place.path().join("auditor");
    fs::copy(AUDITOR, &auditor)?;
    fs::set_permissions(place.path(), fs::metadata("/usr")?.permissions())?;
    let output = Command::new(&auditor).args(["audit", "--all"]).uid(4242).gid(4242).output()?;
    expect(&output, NOT_SEEN, "does not show its program: Permission denied")?;
    // A copy under another name has the user of the driver.
    let relay = Running::of("ebs-csi-relay", &["relay"])?;
    audit(&["--all"])?.is(NOT_SEEN, &["controller/program", "machine/programs"])?;
    drop(relay);
    Ok(())
}

/// Audits processes here, and as they were collected: both reports are equal, byte by byte.
fn collected() -> TestResult {
    const SECRET: &str = "do-not-keep-me";
    let place = tempfile::tempdir()?;
    let with_secret = format!("env AWS_SECRET_ACCESS_KEY={SECRET} {ISOLATED}");
    let helper = Running::helper(&with_secret, "supervisor", 4, &["--paths=any"])?;
    let agent = Running::of("ebs-csi-node-agent", &["connected", "--endpoint=unix:///none"])?;
    let relay = Running::of("ebs-csi-relay", &["relay"])?;
    let directory = place.path().join("collected");
    let directory = directory.to_str().ok_or("no text")?;
    let run = |arguments: &[&str]| Command::new(AUDITOR).args(arguments).output();
    expect(&run(&["collect", directory])?, 0, "")?;
    let file = format!("{directory}/collected.json");
    let text = fs::read_to_string(&file)?;
    check(text.contains("AWS_SECRET_ACCESS_KEY") && !text.contains(SECRET), &"the secret")?;
    let modes = [directory, &file].map(|path| fs::metadata(path).map(|it| it.permissions().mode()));
    let [of_directory, of_file] = modes;
    check(of_directory? & 0o777 == 0o700 && of_file? & 0o777 == 0o600, &"the modes")?;
    let (tree, pid) = (helper.pid(), agent.pid());
    let subjects = [
        &["--all"][..],
        &["--tree", &tree],
        &["--pid", &pid, "--as", "node-agent"],
        &["--pid", &tree, "--as", "tool"],
    ];
    let report = |subject: &[&str], from: &[&str]| -> std::io::Result<Output> {
        run(&[&["audit", "--format", "json"], subject, from].concat())
    };
    let here = subjects.map(|subject| report(subject, &[]));
    drop((helper, agent, relay));
    for (subject, here) in subjects.into_iter().zip(here) {
        let (here, there) = (here?, report(subject, &["--from", directory])?);
        let text = String::from_utf8_lossy(&here.stdout).into_owned();
        check(here.status.code() == Some(DEVIATES) && text.lines().count() > 20, &text)?;
        let is_same = here.status == there.status && here.stdout == there.stdout;
        check(is_same, &(text, String::from_utf8_lossy(&there.stdout)))?;
    }
    expect(
        &report(&["--pid", "1", "--as", "broker"], &["--from", directory])?,
        NOT_SEEN,
        "not collected",
    )?;
    // Nothing is written over.
    expect(&run(&["collect", directory])?, NOT_SEEN, "File exists")?;
    for (from, to) in [("\"version\":1", "\"version\":2"), ("\"pid\":", "\"id\":"), ("{", "[")] {
        fs::write(&file, text.replacen(from, to, 1))?;
        expect(&report(&["--all"], &["--from", directory])?, BAD_USAGE, "collected.json")?;
    }
    Ok(())
}
