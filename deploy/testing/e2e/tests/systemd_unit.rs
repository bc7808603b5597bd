//! The systemd unit of the mount-helper: systemd's own checks, and what the helper needs of it.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use ebs_csi_e2e::program;
use ebs_csi_e2e::repository::{read, yaml};
use ebs_csi_policy::profile::{
    self, BROKER, CallAnswer, DIRECTORIES, NODE_AGENT, OPENER, RUNNER, SUPERVISOR, TOOL,
};
use ebs_csi_sandbox::binaries::for_test;

const FOLDER: &str = "deploy/install/systemd";
const NAME: &str = "ebs-csi-mount-helper.service";
const PROGRAM: &str = "/usr/bin/ebs-csi-mount-helper";
const PROFILES: [&profile::Profile; 6] = [BROKER, DIRECTORIES, OPENER, RUNNER, SUPERVISOR, TOOL];

fn settings() -> Vec<(String, String)> {
    let unit = read(&format!("{FOLDER}/{NAME}"));
    unit.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn setting(name: &str) -> String {
    let mut all = settings().into_iter();
    all.find(|it| it.0 == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Runs systemd-analyze. Without it, prints why the test is skipped.
fn analyze(arguments: &[&str]) -> Option<program::Ended> {
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        println!("skipped: no systemd-analyze; Debian's package systemd has it");
        return None;
    }
    Some(program::run(program::bare(analyze, arguments, &[])))
}

/// Also limits systemd's measure of what a service could do, which is 9.6 without any restriction.
#[test]
fn systemd_accepts_unit_and_its_exposure() {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join(NAME);
    // The check looks for the program.
    let unit = read(&format!("{FOLDER}/{NAME}")).replace(PROGRAM, "/bin/true");
    std::fs::write(&copy, unit).expect("a copy");
    let copy = copy.to_str().expect("UTF-8");
    let Some(verified) = analyze(&["verify", "--man=no", copy]) else { return };
    assert_eq!((verified.status, verified.stderr.as_str()), (Some(0), ""));
    let arguments = ["security", "--offline=true", "--threshold=47", "--no-pager", copy];
    let measured = analyze(&arguments).expect("it is there");
    assert_eq!(measured.status, Some(0), "{}", measured.stdout);
}

/// systemd gives a service with such a setting a mount namespace, whose mounts the node does not
/// see. `RestrictSUIDSGID` denies openat2, by which the helper opens everything.
#[test]
fn unit_has_no_setting_that_breaks_helper() {
    let of_mounts = "ProtectSystem ProtectHome ProtectKernelTunables ProtectKernelModules ProtectKernelLogs \
                     ProtectControlGroups ProtectHostname ProtectProc ProcSubset PrivateTmp PrivateDevices \
                     PrivateMounts PrivateIPC PrivateUsers MountFlags MountAPIVFS TemporaryFileSystem \
                     DynamicUser LogNamespace LoadCredential RestrictSUIDSGID";
    for (name, _) in settings() {
        let by_kind = ["Paths", "Directory", "Image", "Images"];
        let kind = by_kind.iter().any(|end| name.ends_with(end)) && name != "RuntimeDirectory";
        assert!(!kind && !of_mounts.split(' ').any(|it| it == name), "{name}");
    }
}

/// The capabilities that the policy names, and those that the start needs to get there.
fn capabilities() -> BTreeSet<String> {
    let held = PROFILES.iter().flat_map(|it| it.capabilities);
    let held = held.map(|it| it.capability.name);
    let started = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"];
    held.chain(started).map(str::to_owned).collect()
}

#[test]
fn unit_allows_what_policy_needs() {
    let bounding = setting("CapabilityBoundingSet");
    let bounding: BTreeSet<String> = bounding.split(' ').map(str::to_owned).collect();
    assert_eq!(bounding, capabilities());
    assert_eq!(setting("RuntimeDirectoryPreserve"), "yes");

    let filter = setting("SystemCallFilter");
    let groups = filter.strip_prefix('~').expect("a list of what is denied");
    let mut denied = BTreeSet::new();
    for group in groups.split(' ') {
        let Some(listed) = analyze(&["syscall-filter", group]) else { return };
        assert_eq!(listed.status, Some(0), "{listed:?}");
        let calls = listed.stdout.lines().map(str::trim);
        denied.extend(calls.filter(|it| !it.starts_with(['@', '#'])).map(str::to_owned));
    }
    assert!(denied.contains("ptrace"), "{denied:?}");
    for profile in PROFILES {
        let allowed = profile.calls.iter().filter(|it| it.answer == CallAnswer::Allow);
        for rule in allowed {
            assert!(!denied.contains(rule.call), "{}: {}", profile.name, rule.call);
        }
    }
}

#[test]
fn unit_and_directories_match_chart_defaults() {
    let values = yaml("deploy/install/chart/values.yaml");
    let helper = &values["node"]["helper"];
    let line = setting("ExecStart");
    let socket = helper["socketDirectory"].as_str().expect("a directory");
    let kubelet = values["node"]["kubeletPath"].as_str().expect("a directory");
    assert!(line.contains(&format!("--listen=unix://{socket}/helper.sock")), "{line}");
    assert!(line.contains(&format!("--kubelet-root={kubelet}")), "{line}");
    assert_eq!(format!("/run/{}", setting("RuntimeDirectory")), socket);

    let source = read("node-agent/src/registration/own_directories.rs");
    let own = source.split_once("DIRECTORY: &str = \"").expect("DIRECTORY").1;
    let own = own.split('"').next().unwrap_or_default();
    let (uid, gid) = (NODE_AGENT.identity.uid, NODE_AGENT.identity.gid);
    let expected: BTreeSet<String> =
        ["plugins/ebs.csi.aws.com", &format!("plugins_registry/{own}")]
            .map(|path| format!("d {kubelet}/{path} 0775 {uid} {gid} -"))
            .into();
    let directories = read(&format!("{FOLDER}/ebs-csi.conf"));
    let lines = directories.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn helper_serves_with_capabilities_of_unit() {
    let Some(binaries) = for_test(&["ebs-csi-mount-helper"]) else { return };
    let helper = binaries.path("ebs-csi-mount-helper").expect("the helper");
    let directory = tempfile::tempdir().expect("a directory");
    let kubelet = directory.path().join("kubelet");
    for name in ["plugins", "pods"] {
        std::fs::create_dir_all(kubelet.join(name)).expect("a directory");
    }
    let line = setting("ExecStart")
        .replace(PROGRAM, helper.to_str().expect("UTF-8"))
        .replace("/run/ebs-csi", directory.path().to_str().expect("UTF-8"))
        .replace("/var/lib/kubelet", kubelet.to_str().expect("UTF-8"));
    let bounding = setting("CapabilityBoundingSet").to_lowercase().replace("cap_", "+");
    let bounding = format!("-all,{}", bounding.replace(' ', ","));
    let script = "mount --bind \"$0\" \"$0\"; mount --make-shared \"$0\"; exec \"$@\"";
    let mut started = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "/bin/sh", "-ec", script])
        .arg(&kubelet)
        .args(["setpriv", "--no-new-privs", "--inh-caps=-all"])
        .arg(format!("--bounding-set={bounding}"))
        .arg("--")
        .args(line.split(' '))
        .arg("--sandbox")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare");
    // Kept open to the end: the helper keeps writing to it.
    let journal = BufReader::new(started.stderr.take().expect("its journal"));
    let mut lines = journal.lines().map_while(Result::ok);
    let before: Vec<String> =
        lines.by_ref().take_while(|line| !line.contains(" supervisor ready ")).collect();
    let pid = rustix::process::Pid::from_child(&started);
    let signalled = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let ended = started.wait().expect("wait");
    let log = before.into_iter().chain(lines).collect::<Vec<_>>();
    assert!(log.iter().any(|line| line.contains(" serving ")), "{log:?}");
    assert_eq!((signalled, ended.code()), (Ok(()), Some(0)), "{log:?}");
}
