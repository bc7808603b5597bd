//! The privileges that a change of the policy gives and takes, and the digest that it changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The files of the policy.
const FOLDERS: [&str; 4] = ["", "sandbox", "iam", "supply-chain"];

fn policy() -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo")).join("..")
}

fn run(command: &str, arguments: &[&Path]) -> Output {
    let program = env!("CARGO_BIN_EXE_ebs-csi-policy");
    Command::new(program).arg(command).args(arguments).output().expect("the binary starts")
}

fn diff(before: &Path, after: &Path) -> Output {
    run("diff", &[before, after])
}

/// Returns what the command says of a checkout: its status, the names that differ, the output.
fn digest(checkout: &Path) -> (Option<i32>, Vec<String>, String) {
    let output = run("digest", &[checkout]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let other =
        text.lines().filter(|line| line.ends_with("differs") || line.contains(" not known "));
    let names = other.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    (output.status.code(), names, text)
}

/// Copies the policy, and replaces a text in one of its files.
fn changed(file: &str, from: &str, to: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a directory");
    for folder in FOLDERS {
        fs::create_dir_all(copy.path().join(folder)).expect("a folder");
        for entry in fs::read_dir(policy().join(folder)).expect("the policy") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let name = path.file_name().expect("a name");
                fs::copy(&path, copy.path().join(folder).join(name)).expect("a copy");
            }
        }
    }
    let path = copy.path().join(file);
    let text = fs::read_to_string(&path).expect("the file");
    assert!(text.contains(from), "{file} has no {from:?}");
    fs::write(&path, text.replacen(from, to, 1)).expect("the file");
    copy
}

/// Returns the lines of a report without the last, which counts them.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.pop().expect("the last line");
    lines
}

/// Changes of a file that give more: the text before (`-`) and after (`+`), and what is reported.
const WIDENED: &str = r#"
sandbox/launcher.toml
- name = "KILL"
+ name = "SYS_ADMIN"
gained launcher: capability SYS_ADMIN effective
lost   launcher: capability KILL effective

sandbox/mount-helper.toml
- one_of = ["BLKGETSIZE64", "BLKGETDISKSEQ"]
+ one_of = ["BLKGETSIZE64", "BLKGETDISKSEQ", "BLKROSET"]
gained opener: call ioctl argument 1 is "BLKROSET"

sandbox/groups.toml
- calls = ["futex"]
+ calls = ["futex", "kill"]
gained broker: call kill
gained controller: call kill

sandbox/mount-helper.toml
- nofile = { value = 64, why = "the disks
+ nofile = { value = 65, why = "the disks
gained opener: limit nofile: 65 instead of 64

sandbox/mount-helper.toml
- nofile = { value = 64, why = "the disks that are on their way to the broker" }
+
gained opener: limit nofile: none instead of 64

sandbox/node-agent.toml
- tcp = "denied"
+ tcp = "free"
gained node-agent: tcp, bind and connect

sandbox/node-agent.toml
- scopes = ["abstract-unix-socket", "signal"]
+ scopes = ["signal"]
gained node-agent: abstract-unix-socket outside its domain

sandbox/tool.toml
- floor_is_hard = true
+ floor_is_hard = false
gained tool: starts with Landlock ABI 0

sandbox/tool.toml
- "/etc/mke2fs.conf"
+ "/etc"
gained tool: file "/etc" "read-file"
lost   tool: file "/etc/mke2fs.conf" "read-file"

mounts.toml
- parts = 64
+ parts = 32
gained without mounts.toml: blank { from = "part", length = 4096, offset = 0, parts = 64 }

tools.toml
- deadline_seconds = 1800
+ deadline_seconds = 3600
gained tools.toml: mke2fs deadline_seconds 3600

process.toml
- bits = ["SECBIT_KEEP_CAPS_LOCKED"]
+ bits = []
gained without process.toml: securebits { bits = ["SECBIT_KEEP_CAPS_LOCKED"] }

environment.toml
- begins = ["CSI_NODE_NAME", "POD_UID"]
+ begins = ["CSI_", "POD_UID"]
gained environment.toml: kept { begins = ["CSI_", "POD_UID"], profiles = ["node-agent"] }

sockets.toml
- group = "node-agent"
+ group = "driver"
gained sockets.toml: sockets { flag = "--listen", group = "driver",

disks.toml
- value = "QEMU NVMe Ctrl"
+ value = "*"
gained disks.toml: disks { attribute = "device/model", classes = ["guest"]

settings.toml
- default = "check"
+ default = "deny"
gained settings.toml: mount-helper "untrusted-images" is "deny" if not given

iam/fence.json
- "ec2:StopInstances"
+ "ec2:RunInstances"
gained iam/fence.json: "ec2:RunInstances" on "arn:*:ec2:*:*:instance/*" where { StringEquals

iam/clone.json
- "NotResource": "arn:*:ec2:*:*:volume/vol-*"
+ "NotResource": ["a", "b"]
gained iam/clone.json: "ec2:CopyVolumes" on all but ["a", "b"] where { StringEquals

iam/trust.json
- pods.eks.amazonaws.com
+ ec2.amazonaws.com
gained iam/trust.json: "sts:AssumeRole" by { Service = "ec2.amazonaws.com" }

supply-chain/helper-crates.txt
- caps              capability
+ hyper a reason
+ caps              capability
gained supply-chain/helper-crates.txt: hyper

supply-chain/node-agent-crates.txt
- caps
+ caps
+ rustls
gained supply-chain/node-agent-crates.txt: rustls
"#;

#[test]
fn each_widened_row_is_gained_and_backwards_lost() {
    for row in WIDENED.trim().split("\n\n") {
        let (file, rest) = row.split_once('\n').expect(row);
        let with = |sign: char| {
            let lines = rest.lines().filter_map(|line| line.strip_prefix(sign));
            lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
        };
        let (from, to) = (with('-'), with('+'));
        let expected = rest.lines().filter(|line| !line.starts_with(['-', '+']));
        let copy = changed(file, &from, &to);
        let forwards = diff(&policy(), copy.path());
        assert_eq!(forwards.status.code(), Some(1), "{file} {to}: {forwards:?}");
        let found = lines(&forwards);
        for line in expected {
            assert!(found.iter().any(|one| one.starts_with(line)), "{line}: {found:?}");
        }
        let mirrored = |line: &String| match line.split_once(' ') {
            Some(("gained", rest)) => format!("lost   {rest}"),
            Some((_, rest)) => format!("gained {}", rest.trim_start()),
            None => String::new(),
        };
        let backwards = lines(&diff(copy.path(), &policy()));
        assert_eq!(backwards.len(), found.len(), "{backwards:?}");
        for line in found
            .iter()
            .filter(|line| !line.contains(" instead of ") && !line.contains(" without "))
        {
            assert!(backwards.contains(&mirrored(line)), "{line}: {backwards:?}");
        }
    }
}

#[test]
fn narrowed_row_or_new_reason_gains_nothing() {
    for (file, from, to, lost) in [
        ("sandbox/controller.toml", "why = \"", "why = \"indeed: ", 0),
        ("sandbox/groups.toml", "kept = \"", "kept = \"indeed: ", 0),
        ("sandbox/launcher.toml", "effective = true", "effective = false", 1),
        ("sandbox/mount-helper.toml", "nofile = { value = 64,", "nofile = { value = 63,", 1),
        ("iam/fence.json", "ReadStatusChecks", "LookAtStatusChecks", 0),
        // A second condition, and a first one.
        (
            "sandbox/controller.toml",
            "one_of = [\"FIONBIO\", \"FIONREAD\"]",
            "one_of = [\"FIONBIO\", \"FIONREAD\"]\nand = { 2 = [\"X\"] }",
            2,
        ),
        (
            "sandbox/mount-helper.toml",
            "why = \"a tool past its deadline",
            "argument = 1\none_of = [\"SIGKILL\"]\nwhy = \"a tool past its deadline",
            2,
        ),
    ] {
        let copy = changed(file, from, to);
        let output = diff(&policy(), copy.path());
        assert_eq!(output.status.code(), Some(0), "{file} {to}: {output:?}");
        assert_eq!(lines(&output).len(), lost, "{file} {to}: {output:?}");
    }
}

#[test]
fn unknown_key_or_file_is_status_2() {
    for (file, from, to, word) in [
        ("sandbox/tool.toml", "tcp = ", "udp = \"free\"\ntcp = ", "udp is not known"),
        ("sandbox/tool.toml", "tcp = \"denied\"", "tcp = 'denied'", "sandbox/tool.toml: line "),
        ("iam/fence.json", "\"Action\"", "\"NotAction\"", "NotAction is not known"),
    ] {
        let copy = changed(file, from, to);
        for output in [diff(&policy(), copy.path()), diff(copy.path(), &policy())] {
            assert_eq!(output.status.code(), Some(2), "{file}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{output:?}");
        }
    }
    let empty = tempfile::tempdir().expect("a directory");
    assert_eq!(diff(&policy(), empty.path()).status.code(), Some(2));
}

const POLICIES: [&str; 3] = ["production", "guest", "sandbox"];

#[test]
fn digest_of_checkout_is_that_of_program() {
    let (status, names, text) = digest(&policy());
    assert_eq!((status, names), (Some(0), Vec::new()));
    let own = run("digest", &[]);
    assert_eq!(text.as_bytes(), own.stdout);
    assert!(POLICIES.iter().all(|name| text.contains(&format!("{name} "))), "{text}");
    // A comment, and a checkout instead of its policy.
    let copy = tempfile::tempdir().expect("a directory");
    let comment =
        changed("settings.toml", "[[mount-helper]]", "# Of the helper.\n\n[[mount-helper]]");
    fs::rename(comment.path(), copy.path().join("policy")).expect("a rename");
    assert_eq!(digest(copy.path()), (Some(0), Vec::new(), text));
}

/// The first text of each file is another one.
#[test]
fn digest_names_file_with_changed_value() {
    for (file, _) in ebs_csi_policy::FILES {
        let copy = changed(file, " = \"", " = \"another ");
        let (status, names, text) = digest(copy.path());
        let wanted: Vec<&str> = POLICIES.into_iter().chain([*file]).collect();
        assert_eq!((status, names), (Some(1), wanted.iter().map(ToString::to_string).collect()));
        assert!(text.contains(file), "{text}");
    }
}

#[test]
fn file_that_no_digest_covers_is_named() {
    for file in ["more.toml", "sandbox/more.toml"] {
        let copy = changed("tools.toml", "", "");
        fs::write(copy.path().join(file), "").expect("a file");
        let (status, names, _) = digest(copy.path());
        assert_eq!((status, names), (Some(1), vec![file.to_owned()]));
    }
}

#[test]
fn unreadable_file_of_checkout_is_status_2() {
    for (file, to) in [("sockets.toml", "why = '"), ("sandbox/tool.toml", "why = 1 1")] {
        let copy = changed(file, "why = \"", to);
        let output = run("digest", &[copy.path()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(file), "{output:?}");
        fs::remove_file(copy.path().join(file)).expect("removed");
        assert_eq!(run("digest", &[copy.path()]).status.code(), Some(2));
    }
    assert_eq!(run("digest", &[Path::new("/nonexistent")]).status.code(), Some(2));
}
