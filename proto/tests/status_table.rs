//! Compares the driver's codes with the spec's own error tables.
//!
//! `csi/error-tables.csv` lists each row of spec.md with the [`Condition`] that this driver answers
//! with, and the reason where its code differs or the call is not offered.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ebs_csi_proto::Condition;
use tonic::Code;

const SPEC_MODULE: &str = "github.com/container-storage-interface/spec@v1.13.0";

struct ExpectedStatus {
    rpc: String,
    condition: String,
    spec_code: String,
    failure: String,
    deviation: String,
}

/// Splits a CSV line into fields; a field with a comma is quoted.
fn fields(line: &str) -> Vec<String> {
    let (mut out, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match (c, quoted) {
            ('"', _) => quoted = !quoted,
            (',', false) => out.push(String::new()),
            _ => out.last_mut().expect("never empty").push(c),
        }
    }
    out
}

fn rows() -> Vec<ExpectedStatus> {
    let text = std::fs::read_to_string("csi/error-tables.csv").expect("error-tables.csv");
    text.lines()
        .skip(1)
        .map(|line| {
            let fields = fields(line).try_into();
            let [rpc, condition, spec_code, failure, deviation] = fields.expect("five fields");
            ExpectedStatus { rpc, condition, spec_code, failure, deviation }
        })
        .collect()
}

fn code_name(condition: Condition) -> String {
    let mut out = String::new();
    for c in format!("{:?}", condition.code()).chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

#[test]
fn status_codes_match_spec_or_state_reason() {
    for row in rows() {
        let what = format!("{}: {}", row.rpc, row.condition);
        if row.failure == "-" {
            assert!(!row.deviation.is_empty(), "{what}: not answered, and no reason");
            continue;
        }
        let ours = Condition::ALL
            .into_iter()
            .find(|c| format!("{c:?}") == row.failure)
            .unwrap_or_else(|| panic!("{what}: {} is no condition", row.failure));
        let (code, spec_code) = (code_name(ours), row.spec_code);
        let same = code == spec_code;
        assert_eq!(same, row.deviation.is_empty(), "{what}: {code} against {spec_code}");
    }
}

#[test]
fn status_table_matches_csi_spec_error_rows() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let fetched = Command::new("go")
        .args(["mod", "download", "-json", SPEC_MODULE])
        .current_dir(scratch.path())
        .output();
    let dir = fetched.ok().filter(|o| o.status.success()).and_then(|o| {
        String::from_utf8_lossy(&o.stdout).lines().find_map(|l| {
            l.trim().strip_prefix("\"Dir\": \"")?.split('"').next().map(str::to_owned)
        })
    });
    let Some(dir) = dir else {
        println!("skipped: the Go module {SPEC_MODULE} cannot be fetched here");
        return;
    };
    let spec = std::fs::read_to_string(Path::new(&dir).join("spec.md")).expect("spec.md");
    let found: BTreeSet<_> =
        rows().into_iter().map(|row| (row.rpc, row.condition, row.spec_code)).collect();
    let expected = spec_rows(&spec);
    assert!(expected.len() > 60, "spec.md was not understood: {} rows", expected.len());
    assert_eq!(found, expected);
}

/// Parses rows such as `| condition | 3 INVALID_ARGUMENT | …` below a heading "… Errors" or "Error
/// Scheme".
fn spec_rows(spec: &str) -> BTreeSet<(String, String, String)> {
    let (mut rpc, mut out) = (None, BTreeSet::new());
    for line in spec.lines() {
        if line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim();
            rpc = match heading.strip_suffix(" Errors") {
                Some(name) => Some(name.to_owned()),
                None => (heading == "Error Scheme").then(|| "*".to_owned()),
            };
        } else if let (Some(rpc), true) = (&rpc, line.starts_with('|')) {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            if let [condition, code, ..] = cells[..]
                && let Some((number, name)) = code.split_once(' ')
                && number.parse::<u8>().is_ok()
            {
                out.insert((rpc.clone(), condition.to_owned(), name.to_owned()));
            }
        }
    }
    out
}

/// Sidecars and kubelet repeat a call after such a condition. After any other condition they assume
/// that the call had no effect.
#[test]
fn exactly_10_conditions_may_be_in_progress() {
    let may = Condition::ALL.into_iter().filter(|condition| condition.may_be_in_progress());
    let names: Vec<String> = may.map(|condition| format!("{condition:?}")).collect();
    let expected = "OperationPending BadStartingToken AttachLimit QuotaExhausted \
        NoCapacityInTopology Throttled BackendDown HelperDown FactsUnknown DeadlinePassed";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn codes_have_the_names_of_grpc_for_go() {
    let names: Vec<_> =
        (0..17).map(|number| ebs_csi_proto::code_name(Code::from(number))).collect();
    let expected = "OK Canceled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists \
        PermissionDenied ResourceExhausted FailedPrecondition Aborted OutOfRange Unimplemented \
        Internal Unavailable DataLoss Unauthenticated";
    assert_eq!(names.join(" "), expected);
}
