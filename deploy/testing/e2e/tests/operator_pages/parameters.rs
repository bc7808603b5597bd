//! `deploy/docs/parameters.md`, and the lists of keys by which the chart checks classes, from the
//! rows of the parser.

use std::fmt::Write as _;

use ebs_csi_parameters::{Form, Row, SnapshotParameters, VolumeAttributes, VolumeParameters};

use crate::assert_current;

const BEGINNING: &str = "# Parameters of classes

For operators: the keys of StorageClasses, VolumeAttributesClasses and VolumeSnapshotClasses of
`ebs.csi.aws.com`, and what the Go driver (v1.64) does differently with them.

- Every value is text, so numbers and booleans need quotes.
- A boolean is `true` or `false`, and an empty one is `false`. The Go driver reads every other word
  as `false`.
- A number is whole and at most 2147483647; 0 is as if it were not given. So is a negative number
  for the Go driver; this driver refuses it. Numbers for a file system may end with `k`, `m` or `g`,
  and are not 0.
- An unknown key, a key in two spellings and a wrong value are refused with INVALID_ARGUMENT, which
  names the key; nothing is made then. The chart refuses its own classes when it is rendered, and
  the [preflight](node-lifecycle.md#before-the-installation-preflight) reports StorageClasses of the
  cluster.
- `csi.storage.k8s.io/fstype` is for external-provisioner, which removes it: `ext4` (also when it is
  missing), `ext3` or `xfs`.

Generated from the rows of `controller/parameters` by
`UPDATE_GENERATED=1 cargo test --workspace --test operator_pages`.
";

const TEMPLATES: &str = "
## Tag templates

The value of a tag is a template of Go's `text/template`. Supported are text, the fields
`.PVCName .PVCNamespace .PVName` (of snapshots
`.VolumeSnapshotName .VolumeSnapshotNamespace .VolumeSnapshotContentName`), `$`, string constants,
integers, `true` and `false`, pipelines, parentheses, `if`/`else if`/`else`, `with`/`else with`,
comments, trim markers, the functions `toUpper toLower contains field substring index lastIndex`,
and Go's `eq ne lt le gt ge and or not len slice print printf println`.

Everything else is refused by name, for example variables, `range`, `define`, fractions, and
`printf` with widths, flags or verbs other than `%s %d %v %q %t`. A template has at most 8192 bytes
and 32 levels.

The fields come from keys that external-provisioner and external-snapshotter add
(`controller.extraCreateMetadata` of the chart):
";

/// Returns the form of a value in words.
fn form(row: &Row) -> String {
    match row.form {
        Form::Text(words) => words.to_owned(),
        Form::Words(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
        Form::Switch => "boolean".to_owned(),
        Form::Number { unit: "", .. } => "number".to_owned(),
        Form::Number { most, unit } if most == i32::MAX.unsigned_abs() => {
            format!("number of {unit}")
        }
        Form::Number { most, unit } => format!("number of {unit}, 1 to {most}"),
        Form::FormatOption(option) => {
            let mut of: Vec<(String, &str)> = Vec::new();
            for support in option.on {
                let words = support.range.map_or("boolean", |range| range.words);
                let names: Vec<_> = support.file_systems.iter().map(|fs| fs.as_str()).collect();
                match of.iter_mut().find(|(_, same)| *same == words) {
                    Some((all, _)) => *all += &format!(", {}", names.join(", ")),
                    None => of.push((names.join(", "), words)),
                }
            }
            let of: Vec<_> = of.iter().map(|(names, words)| format!("{names}: {words}")).collect();
            of.join("; ")
        }
        Form::SetBySidecar => "set by a sidecar".to_owned(),
        Form::Ignored => "without effect".to_owned(),
    }
}

/// Appends a table of the rows that a user writes.
fn table(out: &mut String, title: &str, rows: &[Row]) {
    let _ = write!(
        out,
        "\n## {title}\n\n| Key | Value | Default | Meaning | Go driver | Example |\n\
         |---|---|---|---|---|---|\n"
    );
    for row in rows.iter().filter(|row| row.form != Form::SetBySidecar) {
        let same = if row.go_driver.is_empty() { "same" } else { row.go_driver };
        let example = row.example().into_iter();
        let example =
            example.map(|(key, value)| format!("`{}: \"{value}\"`", key.replace("_N", "_1")));
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {same} | {} |",
            row.key,
            form(row),
            row.default,
            row.meaning,
            example.collect::<Vec<_>>().join(", "),
        );
    }
}

#[test]
fn parameters_page_matches_rows_of_parser() {
    let mut out = BEGINNING.to_owned();
    let (format, volume): (Vec<_>, Vec<_>) = VolumeParameters::rows()
        .into_iter()
        .partition(|row| matches!(row.form, Form::FormatOption(_)));
    table(&mut out, "StorageClass: the volume (keys in any letter case)", &volume);
    table(&mut out, "StorageClass: the file system (not for raw block volumes)", &format);
    let attributes = VolumeAttributes::rows();
    table(&mut out, "VolumeAttributesClass (keys as written)", &attributes);
    let snapshot = SnapshotParameters::rows();
    table(&mut out, "VolumeSnapshotClass (keys in any letter case)", &snapshot);
    out.push_str(TEMPLATES);
    out.push_str("\n| Key that a sidecar adds | Meaning |\n|---|---|\n");
    for row in volume.iter().chain(&snapshot).filter(|row| row.form == Form::SetBySidecar) {
        let _ = writeln!(out, "| `{}` | {} |", row.key, row.meaning);
    }
    assert_current("deploy/docs/parameters.md", &out);
}

/// Returns a named template with these words.
fn define<'a>(name: &str, words: impl Iterator<Item = &'a Row>, is_any_case: bool) -> String {
    let mut out = format!("\n{{{{- define \"ebs.{name}\" -}}}}\n");
    for row in words {
        let key = row.key.to_owned();
        out += &if is_any_case { key.to_lowercase() } else { key };
        out.push('\n');
    }
    out + "{{- end -}}\n"
}

#[test]
fn chart_lists_match_rows_of_parser() {
    let known = |mut rows: Vec<Row>| {
        rows.retain(|row| row.prefix().is_none() && row.form != Form::SetBySidecar);
        rows.sort_by_key(|row| row.form == Form::Ignored);
        rows
    };
    let volume = known(VolumeParameters::rows());
    let attributes = known(VolumeAttributes::rows());
    let snapshot = known(SnapshotParameters::rows());
    let of_any_case = || volume.iter().chain(&snapshot);
    let numbers = of_any_case().filter(|row| matches!(row.form, Form::Number { .. }));
    let switches = of_any_case().filter(|row| row.is_switch());
    let mut out = "{{- /* Keys of classes, written by UPDATE_GENERATED=1 cargo test --workspace \
                   --test operator_pages. */ -}}\n"
        .to_owned();
    out += "\n{{- /* Of a StorageClass, in lower case. */ -}}";
    out += &define("parameters", volume.iter(), true);
    out += "\n{{- /* Of a VolumeAttributesClass, as they are written. */ -}}";
    out += &define("attributes", attributes.iter(), false);
    out += "\n{{- /* Of a VolumeSnapshotClass, in lower case. */ -}}";
    out += &define("snapshotParameters", snapshot.iter(), true);
    out += "\n{{- /* Of all, whose values are whole numbers. */ -}}";
    out += &define("numbers", numbers, true);
    out += "\n{{- /* Of all, whose values are true or false. */ -}}";
    out += &define("switches", switches, true);
    assert_current("deploy/install/chart/templates/_parameters.tpl", &out);
}
