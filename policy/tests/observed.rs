//! What processes were seen to do: `observed/NAME.txt` has the system calls that processes of a
//! profile made under their whole filter, as `deploy/testing/observed-calls --write` found them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ebs_csi_policy::profile::{ALL, Profile};

/// A runner has no filter of its own, and a relay needs vsock, which few machines have.
const NOT_OBSERVED: [&str; 2] = ["relay", "runner"];

fn known(profile: &Profile) -> BTreeSet<&'static str> {
    let chosen = profile.choices.iter().flat_map(|choice| choice.calls);
    profile.calls.iter().chain(chosen).map(|rule| rule.call).collect()
}

#[test]
fn every_observed_call_has_a_rule() {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let directory = Path::new(&root).join("observed");
    for profile in ALL.iter().filter(|profile| !NOT_OBSERVED.contains(&profile.name)) {
        let file = directory.join(format!("{}.txt", profile.name));
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let known = known(profile);
        let unknown: Vec<_> = text.lines().filter(|call| !known.contains(call)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", profile.name);
        assert!(text.lines().count() > 10, "{} has few calls", file.display());
    }
    assert_eq!(fs::read_dir(directory).unwrap().count(), ALL.len() - NOT_OBSERVED.len());
}
