//! The digest of a policy: over the values of its files, not over their text. A comment, white
//! space and the order of keys change nothing; every value does, reasons too.
//!
//! The build of `ebs-csi-policy` and its command `digest` both compute it here.

use std::fs;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::{Value, toml};

/// The files that make up the policy, in the order in which the digest covers them.
pub const FILES: [&str; 15] = [
    "mounts.toml",
    "tools.toml",
    "format-options.toml",
    "settings.toml",
    "disks.toml",
    "process.toml",
    "environment.toml",
    "sockets.toml",
    "sandbox/groups.toml",
    "sandbox/controller.toml",
    "sandbox/node-lifecycle.toml",
    "sandbox/launcher.toml",
    "sandbox/node-agent.toml",
    "sandbox/mount-helper.toml",
    "sandbox/tool.toml",
];

/// Returns the digest of one file: SHA-256, 64 hexadecimal digits. Fails as [`toml`] does.
pub fn of_file(text: &str) -> Result<String, String> {
    // JSON has one form of each value, and the tables are in the order of their keys.
    let values = Value::Table(toml(text)?).to_json();
    Ok(hexadecimal(&Sha256::digest(values.as_bytes())))
}

/// Returns the digest of the policy of that name with these files, each with its digest.
#[must_use]
pub fn of_policy(policy: &str, files: &[(&str, String)]) -> String {
    let mut hash = Sha256::new();
    hash.update(policy.as_bytes());
    for (name, digest) in files {
        hash.update(format!("\n{name} {digest}").as_bytes());
    }
    hexadecimal(&hash.finalize())
}

/// Returns each file of a `policy/` directory with its digest. The error is one line that names the
/// file.
pub fn of_directory(directory: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let digest = |name: &'static str| {
        let path = directory.join(name);
        let failed = |why: String| format!("{}: {why}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        Ok((name, of_file(&text).map_err(failed)?))
    };
    FILES.into_iter().map(digest).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn policy() -> PathBuf {
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo")).join("..")
    }

    /// Changes one value, the first of each kind at a time; returns whether there was one.
    fn change(value: &mut Value, left: &mut usize) -> bool {
        match value {
            Value::List(list) => list.iter_mut().any(|one| change(one, left)),
            Value::Table(table) => table.values_mut().any(|one| change(one, left)),
            _ if *left > 0 => {
                *left -= 1;
                false
            }
            Value::Text(text) => {
                text.push('x');
                true
            }
            Value::Number(number) => {
                *number += 1;
                true
            }
            Value::Switch(switch) => {
                *switch = !*switch;
                true
            }
        }
    }

    /// Writes a table as TOML, with one key a line.
    fn written(table: &Value) -> String {
        let Value::Table(table) = table else { panic!("{table}") };
        table.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }

    #[test]
    fn comments_spaces_and_order_change_no_digest() {
        for name in FILES {
            let text = fs::read_to_string(policy().join(name)).unwrap();
            let digest = of_file(&text).unwrap();
            let spaced = text.replace(" = ", "   =\t").replace("\n[", "\n\n# [other]\n[");
            assert_ne!(spaced, text);
            assert_eq!(of_file(&spaced).unwrap(), digest, "{name}");
            let without: Vec<_> =
                text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
            assert_eq!(of_file(&without.join("\n")).unwrap(), digest, "{name}");
            // The keys of the top in their order, each with all of its rows.
            let sorted = written(&Value::Table(toml(&text).unwrap()));
            assert_eq!(of_file(&sorted).unwrap(), digest, "{name}");
        }
    }

    #[test]
    fn each_value_of_each_file_changes_its_digest() {
        for name in FILES {
            let text = fs::read_to_string(policy().join(name)).unwrap();
            let values = Value::Table(toml(&text).unwrap());
            let digest = of_file(&text).unwrap();
            let mut changes = 0;
            loop {
                let mut changed = values.clone();
                if !change(&mut changed, &mut changes.clone()) {
                    break;
                }
                assert_ne!(of_file(&written(&changed)).unwrap(), digest, "{name}, value {changes}");
                changes += 1;
            }
            assert!(changes > 3, "{name} has {changes} values");
        }
    }

    #[test]
    fn removed_row_and_other_order_change_digest() {
        let digest = |text: &str| of_file(text).unwrap();
        let all = "[[a]]\nb = 1\n[[a]]\nb = 2\n";
        assert_ne!(digest(all), digest("[[a]]\nb = 1\n"));
        assert_ne!(digest(all), digest("[[a]]\nb = 2\n[[a]]\nb = 1\n"));
        assert_ne!(digest("a = 1\n"), digest("a = \"1\"\n"));
        assert_eq!(digest("a = 1_000\nb = 2\n"), digest("b = 2\na = 1000\n"));
    }

    #[test]
    fn policy_has_digest_of_its_name_and_files() {
        let files = of_directory(&policy()).unwrap();
        assert_ne!(of_policy("a", &files), of_policy("b", &files));
        let mut other = files.clone();
        other[3].1 = other[4].1.clone();
        assert_ne!(of_policy("a", &files), of_policy("a", &other));
        let error = of_directory(Path::new("/nonexistent")).unwrap_err();
        assert!(error.starts_with("/nonexistent/mounts.toml: "), "{error}");
    }
}
