//! The programs of a build, by their SHA-256.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use ebs_csi_policy::profile::Profile;

use crate::answer::{Answer, Verdict};
use crate::process::Process;
use crate::rules::DIGEST;

/// The first line of an image's list of files.
const HEADER: &str = "mode\towner\tbytes\tpackage\tversion\tsha256\tpath";
/// Where the lists are, beside `digests.yaml`: an image of several architectures has several.
const DIRECTORIES: [&str; 3] = [".", "amd64", "arm64"];

/// The programs of the images that a `digests.yaml` names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// The file name and the SHA-256 of each file of the images.
    files: BTreeSet<(String, String)>,
}

impl Build {
    /// Reads the `digests.yaml` of `deploy/install/images/build` and the lists of files
    /// (`IMAGE.files.tsv`) that the build wrote beside it. The error is one line for the user.
    pub fn read(digests: &Path) -> Result<Self, String> {
        let failed =
            |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = fs::read_to_string(digests).map_err(|error| failed(digests, &error))?;
        let images = images(&text).ok_or_else(|| failed(digests, &"not a build's digests.yaml"))?;
        let directory = digests.parent().unwrap_or(Path::new("."));
        let mut build = Self::default();
        for image in images {
            let mut is_listed = false;
            for inside in DIRECTORIES {
                let list = directory.join(inside).join(format!("{image}.files.tsv"));
                let text = match fs::read_to_string(&list) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    text => text.map_err(|error| failed(&list, &error))?,
                };
                let files = files(&text).ok_or_else(|| failed(&list, &"not a list of files"))?;
                build.files.extend(files);
                is_listed = true;
            }
            if !is_listed {
                let name = format!("{image}.files.tsv");
                return Err(failed(&directory.join(name), &"the build's list is not there"));
            }
        }
        Ok(build)
    }

    pub(crate) fn answer(&self, process: &Process, profile: &'static Profile) -> Answer {
        let path = format!("/proc/{}/exe", process.pid);
        let (verdict, found) = match &process.seen.digest {
            None => (Verdict::NotSeen, "not read".to_owned()),
            Some(Err(why)) => (Verdict::NotSeen, why.clone()),
            Some(Ok(found)) => (self.verdict(&process.program, found), format!("sha256:{found}")),
        };
        Answer::new(profile, DIGEST, verdict, found, path)
    }

    fn verdict(&self, program: &str, digest: &str) -> Verdict {
        let mut known = self.files.iter().filter(|(name, _)| name == program);
        // Of a program that the build does not have, nothing is known.
        let Some((_, first)) = known.next() else { return Verdict::NotSeen };
        if first == digest || known.any(|(_, other)| other == digest) {
            Verdict::Conforms
        } else {
            Verdict::Deviates
        }
    }
}

/// Returns the names of the images, `mount-helper` for `mountHelper: {digest: "sha256:…"}`.
fn images(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    if lines.next()? != "images:" {
        return None;
    }
    let mut found = Vec::new();
    for line in lines {
        let (key, value) = line.strip_prefix("  ")?.split_once(": ")?;
        if key == "architectures" {
            continue;
        }
        let digest = value.strip_prefix("{digest: \"sha256:")?.strip_suffix("\"}")?;
        if !is_sha256(digest) || !key.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return None;
        }
        let mut name = String::new();
        for letter in key.chars() {
            if letter.is_ascii_uppercase() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        found.push(name);
    }
    (!found.is_empty()).then_some(found)
}

/// Returns the file name and the SHA-256 of each file of a list.
fn files(text: &str) -> Option<BTreeSet<(String, String)>> {
    let mut lines = text.lines();
    if lines.next()? != HEADER {
        return None;
    }
    let mut found = BTreeSet::new();
    for line in lines {
        let columns: Vec<&str> = line.split('\t').collect();
        let [mode, _, _, _, _, digest, path] = columns[..] else { return None };
        if !mode.starts_with('-') {
            continue;
        }
        if !is_sha256(digest) {
            return None;
        }
        let name = path.rsplit('/').next()?;
        found.insert((name.to_owned(), digest.to_owned()));
    }
    Some(found)
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(digest: &str) -> String {
        format!(
            "images:\n  architectures: [amd64, arm64]\n  controller: {{digest: \"sha256:{digest}\"}}\n  \
             mountHelper: {{digest: \"sha256:{digest}\"}}\n"
        )
    }

    #[test]
    fn digests_yaml_of_build_names_images() {
        let text = digests(&"0".repeat(64));
        assert_eq!(images(&text).unwrap(), ["controller", "mount-helper"]);
        for wrong in [
            text.replace("images:", "image:"),
            text.replace("sha256:", "sha512:"),
            digests("12"),
            text.replace("controller:", "../controller:"),
            "images:\n".to_owned(),
            String::new(),
        ] {
            assert_eq!(images(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn build_without_list_or_digest_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("digests.yaml");
        assert!(Build::read(&file).unwrap_err().contains("digests.yaml"));
        fs::write(&file, digests(&"0".repeat(64))).unwrap();
        assert!(Build::read(&file).unwrap_err().contains("controller.files.tsv"));
        let list = |digest: &str| {
            format!("{HEADER}\nd755\t0:0\t0\t-\t-\t-\t/usr\n-755\t0:0\t5\tp\t1\t{digest}\t/usr/x\n")
        };
        let (old, new) = ("a".repeat(64), "b".repeat(64));
        fs::create_dir(place.path().join("arm64")).unwrap();
        for (name, text) in
            [("controller.files.tsv", list(&old)), ("arm64/mount-helper.files.tsv", list(&new))]
        {
            fs::write(place.path().join(name), text).unwrap();
        }
        let build = Build::read(&file).unwrap();
        for (program, digest, expected) in [
            ("x", &*old, Verdict::Conforms),
            ("x", &new, Verdict::Conforms),
            ("x", "c", Verdict::Deviates),
            ("usr", "-", Verdict::NotSeen),
        ] {
            assert_eq!(build.verdict(program, digest), expected, "{program} {digest}");
        }
        fs::write(place.path().join("controller.files.tsv"), "mode\n").unwrap();
        assert!(Build::read(&file).unwrap_err().contains("not a list"));
    }
}
