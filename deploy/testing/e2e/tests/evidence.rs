//! What `deploy/evidence` writes of, as far as it can be judged without a build.

use std::collections::BTreeSet;

use ebs_csi_e2e::repository::{is_a_test, read};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Classes {
    class: Vec<Class>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    cves: Vec<String>,
    control: String,
    tests: Vec<String>,
}

fn is_cve(text: &str) -> bool {
    let number = text.strip_prefix("CVE-").and_then(|rest| rest.split_once('-'));
    number.is_some_and(|(year, number)| {
        let are_digits = |text: &str| text.bytes().all(|one| one.is_ascii_digit());
        year.len() == 4 && number.len() >= 4 && are_digits(year) && are_digits(number)
    })
}

#[test]
fn each_vulnerability_class_cites_existing_tests() {
    let classes: Classes = toml::from_str(&read("policy/cves.toml")).expect("the file's shape");
    let mut names = BTreeSet::new();
    for Class { name, cves, control, tests } in classes.class {
        assert!(!cves.is_empty() && cves.iter().all(|one| is_cve(one)), "{name}: {cves:?}");
        assert!(!control.is_empty() && !tests.is_empty(), "{name}: no control or no test");
        for test in tests {
            assert!(is_a_test(&test), "{name}: no test {test}");
        }
        assert!(names.insert(name.clone()), "twice: {name}");
    }
    assert!(!names.is_empty());
}
