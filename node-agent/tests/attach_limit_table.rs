//! `data/renew-attach-limits`, which writes the table of attachment limits from saved answers of
//! DescribeInstanceTypes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn data(name: &str) -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    Path::new(&here).join("data").join(name)
}

/// Returns a type as DescribeInstanceTypes shows it.
fn described(name: &str, limit: u32, kind: &str, hypervisor: &str) -> Value {
    let ebs = json!({"MaximumEbsAttachments": limit, "AttachmentLimitType": kind});
    json!({"InstanceType": name, "Hypervisor": hypervisor, "EbsInfo": ebs})
}

/// Runs the script on a table and one answer for each list of types. Returns the table afterwards.
fn renew(table: &str, answers: &[Vec<Value>]) -> (Output, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("table");
    std::fs::write(&path, table).expect("the table");
    let mut script = Command::new("python3");
    script.arg("-B").arg(data("renew-attach-limits")).arg("--table").arg(&path);
    for (number, types) in answers.iter().enumerate() {
        let answer = dir.path().join(format!("{number}.json"));
        std::fs::write(&answer, json!({"InstanceTypes": types}).to_string()).expect("an answer");
        script.arg(answer);
    }
    let output = script.output().expect("python3");
    (output, std::fs::read_to_string(&path).expect("the table"))
}

#[test]
fn table_without_news_stays_as_it_is() {
    let table = std::fs::read_to_string(data("attach-limits.txt")).expect("the table");
    let (output, renewed) = renew(&table, &[Vec::new()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(renewed, table);
}

#[test]
fn saved_answers_add_and_change_types() {
    let table =
        "# Head.\nm5              27  shared     large\nz1              30  shared     metal\n";
    let east = vec![
        described("m5.large", 26, "shared", "nitro"),
        described("m5.metal", 31, "shared", ""),
        described("c9g.xlarge", 32, "dedicated", "nitro"),
        described("c9g.large", 32, "dedicated", "nitro"),
        described("c9g.metal-48xl", 79, "shared", ""),
        described("t2.nano", 40, "shared", "xen"),
    ];
    let west = vec![described("m5.large", 26, "shared", "nitro")];
    let (output, renewed) = renew(table, &[east, west]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        renewed,
        "# Head.\n\
         c9g             32  dedicated  large xlarge\n\
         c9g             79  dedicated  metal-48xl\n\
         m5              26  shared     large\n\
         m5              31  shared     metal\n\
         t2              39  dedicated  nano\n\
         z1              30  shared     metal\n"
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("m5.large 26 shared instead of 27 shared"), "{said}");
    assert!(said.contains("t2.nano 39 dedicated is new"), "{said}");
    assert_eq!(said.lines().count(), 6, "{said}");
}

#[test]
fn contradicting_answers_leave_table_unchanged() {
    let table = "# Head.\n";
    let answer = |limit| vec![described("m5.large", limit, "shared", "nitro")];
    let (output, renewed) = renew(table, &[answer(27), answer(26)]);
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("m5.large"), "{error}");
    assert_eq!(renewed, table);
}
