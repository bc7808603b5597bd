//! What the rows say is what the parsers do.

use std::collections::HashMap;

use ebs_csi_parameters::{
    Form, FormatKeys, Row, SnapshotParameters, VolumeAttributes, VolumeParameters,
};
use ebs_csi_policy::format_option::OptionKind;
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::FsType;

type Entries = HashMap<String, String>;

/// Parses a class, and returns the format options of a StorageClass.
type Parse = fn(&Entries) -> Result<FormatKeys, Failure>;

fn classes() -> [(Vec<Row>, Parse); 3] {
    [
        (VolumeParameters::rows(), |it| VolumeParameters::parse(it).map(|class| class.format)),
        (VolumeAttributes::rows(), |it| VolumeAttributes::parse(it).map(|_| FormatKeys::default())),
        (SnapshotParameters::rows(), |it| {
            SnapshotParameters::parse(it).map(|_| FormatKeys::default())
        }),
    ]
}

/// Calls the check for each row of each class.
fn each(check: impl Fn(&Row, Parse)) {
    for (rows, parse) in classes() {
        assert!(rows.len() > 6, "{rows:?}");
        rows.iter().for_each(|row| check(row, parse));
    }
}

/// Returns the entries of the row's example, with this value.
fn with_value(row: &Row, value: &str) -> Entries {
    let mut entries: Entries =
        row.example().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    entries.insert(row.key.to_owned(), value.to_owned());
    entries
}

#[test]
fn example_of_each_row_is_accepted() {
    each(|row, parse| {
        let example = row.example();
        assert!(!row.meaning.is_empty() && !example[0].1.is_empty(), "{row:?}");
        let format = parse(&with_value(row, &example[0].1));
        let format = format.unwrap_or_else(|refused| panic!("{}: {refused}", row.key));
        let is_format_key = matches!(row.form, Form::FormatOption(_));
        assert_eq!(format.check_for_block().is_err(), is_format_key, "{}", row.key);
    });
}

#[test]
fn value_beside_range_is_refused_by_key() {
    each(|row, parse| {
        if let Form::Number { most, .. } = row.form {
            for end in ["1".to_owned(), most.to_string()] {
                assert!(parse(&with_value(row, &end)).is_ok(), "{}: {end}", row.key);
            }
        }
        let beside: Vec<String> = match row.form {
            Form::Number { most, .. } => vec!["-1".to_owned(), (u64::from(most) + 1).to_string()],
            Form::FormatOption(option) if option.kind == OptionKind::Number => {
                let range = option.on[0].range.expect("a number");
                vec![(range.least - 1).to_string(), (range.most + 1).to_string()]
            }
            Form::Switch | Form::FormatOption(_) => vec!["True".to_owned(), "1".to_owned()],
            Form::Words(words) => vec![words[0].to_uppercase(), String::new()],
            Form::Text(_) | Form::SetBySidecar | Form::Ignored => return,
        };
        for value in beside {
            let format = parse(&with_value(row, &value));
            let checked = format.and_then(|format| format.check_for(FsType::Ext4));
            let refused = checked.expect_err(&format!("{}: {value}", row.key));
            let text = refused.text().to_lowercase();
            assert!(text.contains(&row.key.to_lowercase()), "{}: {value}: {refused}", row.key);
            assert_eq!(refused.condition(), Condition::InvalidField, "{refused}");
        }
    });
}

#[test]
fn keys_without_row_are_unknown() {
    for (rows, parse) in classes() {
        for row in &rows {
            let shorter = row.prefix().map_or(&row.key[1..], |prefix| &prefix[..prefix.len() - 1]);
            let entries = HashMap::from([(shorter.to_owned(), row.example()[0].1.clone())]);
            let refused = parse(&entries).expect_err(shorter);
            for known in &rows {
                let is_listed = !matches!(known.form, Form::SetBySidecar | Form::Ignored);
                assert_eq!(refused.text().contains(known.key), is_listed, "{known:?}: {refused}");
            }
        }
    }
}
