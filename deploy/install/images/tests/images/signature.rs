//! The signature of a build's digests, with throw-away keys.

use std::path::Path;
use std::process::Command;

use ebs_csi_e2e::repository::read;

use crate::packed::script;

fn openssl(directory: &Path, words: &str) -> bool {
    let openssl = Command::new("openssl").args(words.split(' ')).current_dir(directory).output();
    openssl.is_ok_and(|done| done.status.success())
}

/// Returns the command of the operators' page.
fn documented() -> String {
    let page = read("deploy/install/images/README.md");
    let mut lines = page.lines().map(str::trim);
    let command = lines.find_map(|line| line.strip_prefix("openssl pkeyutl -verify "));
    format!("pkeyutl -verify {}", command.expect("the page has the command"))
}

#[test]
fn documented_command_verifies_signature_of_digests_only() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let make = |key: &str| openssl(directory, &format!("genpkey -algorithm ed25519 -out {key}"));
    if !make("key.pem") {
        println!("skipped: no openssl that makes Ed25519 keys");
        return;
    }
    let digests = directory.join("digests.yaml");
    std::fs::write(&digests, "images:\n  controller: {digest: \"sha256:1\"}\n").unwrap();
    let sign = |key: &str| script("sign").arg(directory.join(key)).arg(directory).output().unwrap();
    let signed = sign("key.pem");
    assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
    assert!(openssl(directory, "pkey -in key.pem -pubout -out public.pem"));
    let verify = documented();
    assert!(openssl(directory, &verify), "{verify}");

    std::fs::write(&digests, "images:\n  controller: {digest: \"sha256:2\"}\n").unwrap();
    assert!(!openssl(directory, &verify), "other digests verify");
    assert!(make("other.pem") && sign("other.pem").status.success());
    assert!(!openssl(directory, &verify), "another key's signature verifies");
    assert!(openssl(directory, "genpkey -algorithm ed448 -out longer.pem"));
    assert!(!sign("longer.pem").status.success(), "a key that is not Ed25519 signs");
}
