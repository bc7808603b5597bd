//! The chart as an artifact of a registry, and for tools that render it again and again.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ebs_csi_e2e::registry::Registry;
use ebs_csi_e2e::repository::{entries, read, root};

use crate::{helm, sets, text};

/// Returns the command of the README that begins so.
fn documented(begins: &str) -> String {
    let page = read("deploy/install/chart/README.md");
    let mut commands = page.lines().filter_map(|line| line.strip_prefix("    "));
    let command = commands.find(|line| line.starts_with(begins));
    command.unwrap_or_else(|| panic!("no command {begins}")).to_owned()
}

/// A directory in which `deploy` is the repository's, and a registry.
struct Place {
    directory: tempfile::TempDir,
    helm: PathBuf,
    registry: Registry,
}

impl Place {
    fn new() -> Option<Self> {
        let helm = helm()?;
        let registry = Registry::start()?;
        let directory = tempfile::tempdir().expect("a directory");
        let deploy = root().join("deploy").canonicalize().expect("a folder");
        std::os::unix::fs::symlink(deploy, directory.path().join("deploy")).expect("a link");
        Some(Self { directory, helm, registry })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a command of a program that finds its home and its keys in the directory.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        command.env("HOME", self.path()).env("GNUPGHOME", self.path());
        command
    }

    fn run(&self, command: &str) -> Output {
        let arguments = command.strip_prefix("helm ").expect("a command of Helm").split(' ');
        let mut process = self.command(&self.helm);
        process.args(arguments).output().expect("Helm can be started")
    }

    /// Runs the command of the README that begins so. The registry has no TLS.
    fn of_page(&self, begins: &str) -> Output {
        let command = documented(begins).replace("REGISTRY", &self.registry.address);
        let plain = if command.contains("oci://") { " --plain-http" } else { "" };
        self.run(&(command + plain))
    }
}

fn succeeds(out: &Output) -> String {
    let said = [&out.stdout[..], &out.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(out.status.success(), "{said}");
    said
}

const PACKAGE: &str = "helm package deploy/install/chart";

#[test]
fn pushed_chart_renders_as_the_folder_does() {
    let Some(place) = Place::new() else { return };
    succeeds(&place.of_page(PACKAGE));
    let pushed = succeeds(&place.of_page("helm push"));
    assert!(pushed.contains("Digest: sha256:"), "{pushed}");
    let rendered = |chart: &str| {
        let values = "--namespace kube-system --set image.containerRegistry=registry.example.com";
        let out = place.run(&format!("helm template release {chart} {values}"));
        succeeds(&out);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        // Before the objects Helm says what it has pulled.
        text.split_once("---\n").expect("objects").1.to_owned()
    };
    let chart = format!("oci://{}/charts/aws-ebs-csi-driver", place.registry.address);
    let pulled = rendered(&format!("{chart} --version 0.1.0 --plain-http"));
    assert_eq!(pulled, rendered("deploy/install/chart"));
}

#[test]
fn signed_chart_is_verified_and_unsigned_one_refused() {
    let Some(place) = Place::new() else { return };
    let gpg = |arguments: &[&str]| {
        let mut command = place.command("gpg");
        command.args(["--batch", "--quiet", "--passphrase", ""]).args(arguments).output()
    };
    let made = gpg(&["--quick-generate-key", "KEY", "rsa2048", "sign", "never"]);
    if !made.as_ref().is_ok_and(|out| out.status.success()) {
        println!("skipped: no GnuPG that makes keys: {made:?}");
        return;
    }
    for (what, name) in [("--export-secret-keys", "secring.gpg"), ("--export", "pubring.gpg")] {
        let keys = gpg(&[what]).expect("gpg").stdout;
        std::fs::write(place.path().join(name), keys).expect("a keyring");
    }
    let _ = place.command("gpgconf").args(["--kill", "all"]).output();

    succeeds(&place.of_page("helm package --sign"));
    succeeds(&place.of_page("helm push"));
    let verified = succeeds(&place.of_page("helm pull"));
    assert!(verified.contains("Signed by: KEY"), "{verified}");

    std::fs::remove_file(place.path().join("aws-ebs-csi-driver-0.1.0.tgz.prov")).expect("signed");
    succeeds(&place.of_page(PACKAGE));
    succeeds(&place.of_page("helm push"));
    let refused = place.of_page("helm pull");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("provenance"), "{said}");
}

/// Argo CD and Flux render again and again: a value that is generated would change each time.
#[test]
fn chart_renders_the_same_each_time() {
    let Some(helm) = helm() else { return };
    for set in sets() {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let rendered = || text(&helm, &set).expect("rendered");
        assert!(rendered() == rendered(), "{set:?}");
    }
    // Within a second a time may be the same.
    let changing = ["rand", "gen", "now", "uuid", "htpasswd", "bcrypt", "encrypt", "date", "ago"];
    let mut seen = 0;
    for (name, path) in entries("deploy/install/chart/templates") {
        let Ok(template) = std::fs::read_to_string(path) else { continue };
        let actions = template.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
        for action in actions.filter(|it| !it.contains("/*")) {
            // Not what stands between quotes.
            let code = action.split('"').step_by(2).collect::<Vec<_>>().join(" ");
            let words = code.split(|c: char| !c.is_ascii_alphanumeric() && !".$".contains(c));
            for word in words {
                let is_changing = changing.iter().any(|it| word.starts_with(it));
                assert!(!is_changing, "{name}: {word} in {{{{{action}}}}}");
                seen += 1;
            }
        }
    }
    assert!(seen > 1000, "{seen}");
}
