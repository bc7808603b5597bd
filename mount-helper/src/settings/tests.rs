//! Tests of the command line.
use super::*;
use ebs_csi_policy::setting::Effect;
use ebs_csi_policy::{GUEST, SANDBOX};

fn given(arguments: &[&str]) -> Result<Command, String> {
    parse(arguments.iter().map(|a| (*a).to_owned()))
}

#[test]
fn the_defaults_are_those_of_a_kubernetes_node() {
    let Ok(Command::Serve(settings)) = given(&["--listen", "unix:///run/h.sock"]) else {
        panic!("must serve");
    };
    assert_eq!(settings.listen, [Listen::Unix("/run/h.sock".into())]);
    assert_eq!((settings.key_file, settings.vsock_peers), (None, vec![2]));
    assert_eq!(settings.kubelet_root.as_str(), "/var/lib/kubelet");
    assert!(settings.policy == PRODUCTION && settings.places.is_none());
    assert!(!settings.allow_missing_landlock && !settings.allow_private_mounts);
}

#[test]
fn values_may_stand_behind_an_equals_sign() {
    let line = [
        "--listen=unix:///h",
        "--paths=any",
        "--grace=3",
        "--untrusted-images=deny",
        "--nodev-nosuid=untrusted",
        "--disks-without-serial=refuse",
        "--copied-mounts=refuse",
        "--sandbox",
        "--allow-private-mounts",
    ];
    let Ok(Command::Serve(settings)) = given(&line) else {
        panic!("must serve");
    };
    assert!(settings.policy == SANDBOX && settings.places == Some(PlaceClass::Any));
    assert!(settings.allow_private_mounts && !settings.allow_missing_landlock);
    assert_eq!(settings.grace, Duration::from_secs(3));
    assert_eq!(settings.untrusted_images, UntrustedImages::Deny);
    assert_eq!(settings.nodev_nosuid, NodevNosuid::Untrusted);
    assert_eq!(settings.disks_without_serial, DisksWithoutSerial::Refuse);
    assert_eq!(settings.copied_mounts, CopiedMounts::Refuse);
}

#[test]
fn guest_disks_select_the_guest_policy() {
    let Ok(Command::Serve(settings)) = given(&["--listen=unix:///h", "--guest-disks"]) else {
        panic!("must serve");
    };
    assert_eq!((settings.policy, settings.places), (GUEST, None));
}

/// The policy's table has a row for each option, a row's values are the option's, and those that
/// change nothing are its default.
#[test]
fn policy_knows_what_each_option_permits() {
    let options = HELP.lines().filter_map(|line| line.strip_prefix("  --"));
    let options = options.filter_map(|line| line.split(' ').next());
    let rows = setting::SETTINGS.iter().filter(|row| row.program == "mount-helper");
    let rows: Vec<_> = rows.filter(|row| row.flag != "--fault-point").collect();
    let mut named: Vec<_> = rows.iter().map(|row| &row.flag[2..]).collect();
    named.extend(["help", "version"]);
    named.sort_unstable();
    let mut options: Vec<_> = options.collect();
    options.sort_unstable();
    assert_eq!(named, options);
    // The text of an option ends with its default.
    for row in &rows {
        let text = HELP.split_once(&format!("\n  {} ", row.flag)).expect("an option").1;
        let text = text.split_once("\n  --").map_or(text, |(text, _)| text);
        let told = text.split_once("[default: ").map(|(_, told)| told.trim_end());
        let told = told.and_then(|told| told.strip_suffix(']'));
        let default = row.default.or((row.flag == "--paths").then(|| PRODUCTION.places.as_str()));
        assert_eq!(told.and_then(|told| told.split(';').next()), default, "{}", row.flag);
    }
    let Ok(Command::Serve(default)) = given(&["--listen=unix:///h"]) else { panic!("must serve") };
    // An address of vsock needs its key file, and the other way round.
    let alone = |row: &setting::Setting| !row.several && !row.flag.starts_with("--vsock");
    for row in rows.into_iter().filter(|row| alone(row)) {
        let values = [row.narrower, row.same, row.wider].concat();
        let values = values.iter().filter(|value| !value.ends_with('*'));
        let lines = values.map(|value| format!("{}={value}", row.flag));
        for line in lines.chain(row.switch.then(|| row.flag.to_owned())) {
            let found = given(&["--listen=unix:///h", &line]);
            let Ok(Command::Serve(settings)) = found else { panic!("{line}: {found:?}") };
            let value = line.split_once('=').map_or("", |(_, value)| value);
            let effect = row.effect(value);
            assert_eq!(settings.wider.contains(&line), effect == Effect::Wider, "{line}");
            let places = settings.places.filter(|places| *places != PRODUCTION.places);
            let is_default = HelperSettings { places, ..*settings } == *default;
            assert_eq!(is_default, effect == Effect::Same, "{line}");
        }
    }
}

#[test]
fn invalid_command_line_gives_single_line_error() {
    for (line, word) in [
        (&[][..], "--listen"),
        (&["--listen"][..], "needs a value"),
        (&["--listen", "/run/h"][..], "unix:///PATH"),
        (&["--listen", "vsock://:5000"][..], "--vsock-key-file"),
        (&["--vsock-key-file", "key"][..], "absolute path"),
        (&["--vsock-peers", "host"][..], "2 for the host"),
        (&["--listen", "unix://run/h"][..], "unix:///PATH"),
        (&["--kubelet-root", "/a/../b"][..], "--kubelet-root"),
        (&["--paths", "all"][..], "kubernetes or any"),
        (&["--grace", "-1"][..], "0 to 3600"),
        (&["--tool-deadline", "0"][..], "1 to 86400"),
        (&["--untrusted-images", "no"][..], "deny, check or allow"),
        (&["--nodev-nosuid", "yes"][..], "off, untrusted or on"),
        (&["--disks-without-serial", "no"][..], "refuse or by-name"),
        (&["--copied-mounts", "keep"][..], "release or refuse"),
        (&["--sandbox=yes"][..], "takes no value"),
        (&["--sandbox", "--guest-disks"][..], "exclude each other"),
        (&["--guest-disks", "--sandbox"][..], "exclude each other"),
        (&["serve"][..], "unknown argument"),
    ] {
        let error = given(line).expect_err("must be refused");
        assert!(error.contains(word), "{line:?}: {error}");
        assert_eq!(error.lines().count(), 1);
    }
}
