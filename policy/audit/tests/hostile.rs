//! Processes that could end a careless reader, hide a setting or forge a line of the report.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::running::{ISOLATED, Running, audit, check};
use crate::stand_in::STAND_IN;
use crate::{Case, DEVIATES, NOT_SEEN};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("hostile_names_and_arguments_never_conform", || {
        let place = tempfile::tempdir()?;
        let directory = place.path().join("\u{1b}[2J\n0 deviations\u{202e}");
        fs::create_dir(&directory)?;
        let program = directory.join("ebs-csi-controller\nall conform");
        fs::copy(std::env::current_exe()?, &program)?;
        let secret = "secret\r\u{1b}[1A";
        fs::write(directory.join(secret), "")?;
        let mut command = Command::new(&program);
        command.current_dir(&directory);
        let process = Running::spawn(command.args([STAND_IN, "holder", secret, "\u{1b}]0;\n"]), 1)?;
        let audited = process.audit_as("controller")?;
        audited.is(DEVIATES, &["controller/files", "controller/program"])?;
        audited
            .says(DEVIATES, &["ebs-csi-controller\\u{a}all conform", "secret\\u{d}\\u{1b}[1A"])?;
        let is_plain = |one: char| one == '\n' || !one.is_control() && one != '\u{202e}';
        check(audited.text.chars().all(is_plain), &audited.text)?;
        audit(&["--tree", &process.pid()])?.is(NOT_SEEN, &["machine/processes"])
    }),
    ("arguments_of_megabytes_never_conform", || {
        let long = "x".repeat(100_000);
        let many = vec![&*long; 15];
        let controller = Running::start("controller", &many)?;
        controller.audit_as("controller")?.is(NOT_SEEN, &["controller/settings"])?;
        let hidden = [&many[..], &["--paths=any"]].concat();
        let broker = Running::helper(ISOLATED, "broker", 1, &hidden)?;
        broker.audit_as("broker")?.is(NOT_SEEN, &["broker/settings"])
    }),
    ("environment_of_megabytes_never_conforms", || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read line; printf r; read line"]);
        let names: Vec<String> = (0..15).map(|number| format!("V{number}")).collect();
        shell.env_clear().envs(names.iter().map(|name| (name, "x".repeat(100_000))));
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        // Until the shell runs, its environment is this program's.
        let mut byte = [0];
        child.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?;
        child.stdout.as_mut().ok_or("no output")?.read_exact(&mut byte)?;
        let audited = audit(&["--pid", &child.id().to_string(), "--as", "router"]);
        drop(child.stdin.take());
        child.wait()?;
        audited?.says(DEVIATES, &["router/environment cannot be seen"])
    }),
];
