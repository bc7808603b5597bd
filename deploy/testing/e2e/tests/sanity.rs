//! Runs csi-sanity, the conformance test of Kubernetes' storage group, against the driver's
//! sockets.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ebs_csi_e2e::Fixture;
use ebs_csi_e2e::repository::prepared;
use ebs_csi_sandbox::binaries::for_test;
use serde::Deserialize;

/// The cases that csi-sanity may skip: a part of its message, and the reason.
const SKIPS: &[(&str, &str)] = &[
    ("GetCapacity not supported", "EBS has no pool whose free space could be told"),
    (
        "ControllerPublishVolume.readonly field not supported",
        "EC2 attaches read-write only; read-only is a mount's matter",
    ),
    (
        "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported",
        "a snapshot can be restored in every zone of its Region",
    ),
    ("NodeGetVolumeHealth not supported", "health calls are alpha"),
    ("NodeGetStorageHealth not supported", "health calls are alpha"),
];

/// The JUnit report of csi-sanity (in Ginkgo's form).
#[derive(Deserialize)]
struct Report {
    #[serde(rename = "testsuite")]
    suites: Vec<Suite>,
}

#[derive(Deserialize)]
struct Suite {
    #[serde(rename = "testcase", default)]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "@name")]
    name: String,
    skipped: Option<Finding>,
    #[serde(rename = "failure", alias = "error", default)]
    failures: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    #[serde(rename = "@message", default)]
    message: String,
    #[serde(rename = "$text", default)]
    text: String,
}

#[test]
fn passed_failed_and_skipped_cases_are_told_apart() {
    let xml = r#"<testsuites><testsuite name="s"><properties><property name="x" value="y"/></properties>
        <testcase name="[It] a &amp; b" status="passed"><system-err>said</system-err></testcase>
        <testcase name="[It] c"><skipped message="skipped - not supported"></skipped></testcase>
        <testcase name="[It] d"><failure message="expected" type="failed">at line 1</failure></testcase>
        <testcase name="[It] e"/>
        </testsuite></testsuites>"#;
    let report: Report = quick_xml::de::from_str(xml).unwrap();
    let words = |case: &Case| {
        let skipped = case.skipped.iter().map(|it| it.message.clone());
        let failed = case.failures.iter().map(|it| format!("{}: {}", it.message, it.text));
        skipped.chain(failed).collect::<String>()
    };
    let found: Vec<_> =
        report.suites[0].cases.iter().map(|case| (case.name.as_str(), words(case))).collect();
    let expected = [
        ("[It] a & b", ""),
        ("[It] c", "skipped - not supported"),
        ("[It] d", "expected: at line 1"),
        ("[It] e", ""),
    ];
    assert_eq!(found, expected.map(|(name, words)| (name, words.to_owned())));
    assert!(quick_xml::de::from_str::<Report>("<a></b>").is_err());
}

struct Run<'a> {
    program: &'a Path,
    /// `mount` or `block`.
    access: &'a str,
    /// Whether to attach a volume for every slot of the node.
    attach_limit: bool,
    /// Whether the node's socket is the controller's, too.
    one_socket: bool,
}

impl Run<'_> {
    /// Runs csi-sanity on the sockets of the controller and of the first node.
    async fn passes(&self, fixture: &Fixture) {
        let node = &fixture.world.nodes[0];
        let own = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = own.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let parameters = write("parameters.yaml", "type: gp3\niops: \"3000\"\n");
        let changes = write("changes.yaml", "iops: \"3014\"\nthroughput: \"153\"\n");
        let report = own.path().join("report.xml");
        let (mounts, staging) = (
            node.kubelet_root.join("pods/sanity-mount"),
            node.kubelet_root.join("plugins/kubernetes.io/csi/sanity-staging"),
        );
        std::fs::create_dir_all(staging.parent().unwrap()).unwrap();
        let unix = |path: &Path| format!("unix://{}", path.display());
        let mut command = tokio::process::Command::new(self.program);
        command
            .args(["--ginkgo.seed", "1", "--ginkgo.no-color"])
            .arg(format!("--ginkgo.junit-report={}", report.display()))
            .arg(format!("-csi.endpoint={}", unix(&node.csi_socket)))
            .arg(format!("-csi.controllerendpoint={}", unix(fixture.world.controller_socket())))
            .arg(format!("-csi.mountdir={}", mounts.display()))
            .arg(format!("-csi.stagingdir={}", staging.display()))
            .arg(format!("-csi.testvolumeaccesstype={}", self.access))
            .arg(format!("-csi.testvolumesize={}", 10_i64 << 30))
            .arg(format!("-csi.testvolumeexpandsize={}", 11_i64 << 30))
            .arg(format!("-csi.testvolumeparameters={}", parameters.display()))
            .arg(format!("-csi.testvolumemutableparameters={}", changes.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if self.attach_limit {
            command.arg("-csi.testnodevolumeattachlimit");
        }
        let output = tokio::time::timeout(Duration::from_secs(400), command.output())
            .await
            .expect("csi-sanity ends in 400 s")
            .unwrap();
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        let Ok(xml) = std::fs::read_to_string(&report) else {
            panic!("csi-sanity ended with {} and wrote no report:\n{words}", output.status);
        };
        let report: Report = quick_xml::de::from_str(&xml).unwrap();
        let mut passed = 0;
        let mut wrong = Vec::new();
        for Case { name, skipped, failures } in report.suites.into_iter().flat_map(|it| it.cases) {
            if let Some(Finding { message, text }) = failures.first() {
                wrong.push(format!("FAILED {name}\n{message}\n{text}"));
            } else if let Some(Finding { message: why, .. }) = skipped {
                match self.reason(&why, &name) {
                    Some(reason) => println!("skipped: csi-sanity {name:?}: {reason}"),
                    None => wrong.push(format!("SKIPPED for no known reason: {name}: {why}")),
                }
            } else {
                passed += 1;
            }
        }
        assert!(
            wrong.is_empty(),
            "csi-sanity ({}):\n{}\n{}",
            self.access,
            wrong.join("\n"),
            fixture.logs()
        );
        assert!(output.status.success(), "csi-sanity failed:\n{words}");
        println!("csi-sanity ({}): {passed} passed", self.access);
        assert!(passed > 60, "only {passed} cases ran");
    }

    fn reason(&self, words: &str, case: &str) -> Option<&'static str> {
        if words.contains("testnodevolumeattachlimit not enabled") && !self.attach_limit {
            return Some("one run with the attach limit is enough");
        }
        if words.contains("GroupControllerService not supported") && !self.one_socket {
            return Some("csi-sanity asks the node for it; the run on one socket has these cases");
        }
        if words == "pending" && case.contains("ListVolumes pagination") {
            return Some("csi-sanity's own authors left it out");
        }
        SKIPS.iter().find(|(part, _)| words.contains(part)).map(|(_, reason)| *reason)
    }
}

async fn against_both_sockets(access: &str, attach_limit: bool) {
    let Some(program) = prepared("csi-sanity") else { return };
    let Some(fixture) = Fixture::with(|options| {
        // csi-sanity requests most volumes without a topology, and they must still be accessible
        // from the node.
        options.one_zone = true;
        let flags = ["--enable-volume-health", "--enable-group-snapshots"];
        options.controller_arguments.extend(flags.map(str::to_owned));
        options.helper_arguments.extend(["--paths".to_owned(), "any".to_owned()]);
    })
    .await
    else {
        return;
    };
    Run { program: &program, access, attach_limit, one_socket: false }.passes(&fixture).await;
    fixture.finish().await;
}

#[tokio::test]
async fn csi_sanity_passes_with_file_systems() {
    against_both_sockets("mount", true).await;
}

#[tokio::test]
async fn csi_sanity_passes_with_raw_block_volumes() {
    against_both_sockets("block", false).await;
}

#[tokio::test]
async fn csi_sanity_passes_on_single_mode_all_socket() {
    let Some(program) = prepared("csi-sanity") else { return };
    if for_test(&["aws-ebs-csi-driver"]).is_none() {
        return;
    }
    let Some(mut fixture) = Fixture::with(|options| options.one_zone = true).await else { return };
    let flags = [
        "--paths=any",
        "--enable-volume-health",
        "--enable-group-snapshots",
        "--snapshot-takeover-wait=1s",
    ];
    fixture.start_all(&flags).await;
    let run = Run { program: &program, access: "mount", attach_limit: false, one_socket: true };
    run.passes(&fixture).await;
    let launcher = fixture.world.launcher.as_mut().expect("the launcher");
    assert!(launcher.stop(Duration::from_secs(40)).await.unwrap(), "a process had to be killed");
    let status = launcher.ended().unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", fixture.logs());
    fixture.finish().await;
}
