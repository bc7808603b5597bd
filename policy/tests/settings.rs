//! What the settings do to the policy: none that is not called wider permits more.

mod fixtures;

use ebs_csi_policy::ceiling::{Ceiling, CeilingSettings};
use ebs_csi_policy::facts::{Content, DeviceNumber, DiskFacts, Evidence, ExtFacts, XfsFacts};
use ebs_csi_policy::judge::disk_by_name::DisksWithoutSerial;
use ebs_csi_policy::judge::untrusted_images::{NodevNosuid, UntrustedImages};
use ebs_csi_policy::judge::{StageDisk, stage_disk};
use ebs_csi_policy::place::{self, PLACES, PlaceClass};
use ebs_csi_policy::setting::{Effect, SETTINGS, Setting, digest_in_force, wider};
use ebs_csi_policy::tool::TOOLS;
use ebs_csi_policy::{PRODUCTION, Policy, SANDBOX};
use ebs_csi_wire::{
    Disk, FsType, KubeletPath, MountFlag, Origin, PlaceFor, Refusal, Source, Stage,
};
use std::time::Duration;

const HELPER: &str = "mount-helper";
const GIB: u64 = 1 << 30;
const OURS: [u8; 16] = [0xeb; 16];

/// Sets what the mount-helper makes of a flag; false when no request is judged by it.
fn set(settings: &mut CeilingSettings, flag: &str, value: &str) -> bool {
    match flag {
        "--paths" => settings.places = PlaceClass::parse(value),
        "--untrusted-images" => settings.untrusted_images = UntrustedImages::parse(value),
        "--nodev-nosuid" => settings.nodev_nosuid = NodevNosuid::parse(value),
        "--disks-without-serial" => {
            settings.disks_without_serial = DisksWithoutSerial::parse(value);
        }
        "--tool-deadline" => {
            settings.tool_deadline = value.parse().ok().map(Duration::from_secs);
        }
        _ => return false,
    }
    true
}

/// Returns the values of a row, with examples for `*`.
fn values(row: &'static Setting) -> impl Iterator<Item = &'static str> {
    let listed = [row.narrower, row.same, row.wider].into_iter().flatten();
    listed
        .flat_map(|value| match *value {
            "*" => &["1", "86400"][..],
            _ => std::slice::from_ref(value),
        })
        .copied()
}

fn rows() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|row| row.program == HELPER)
}

/// Returns one path for each pattern of a place, and some that no pattern has.
fn paths() -> Vec<String> {
    let patterns = PLACES.iter().map(|place| place.pattern.replace("**", "a/b").replace('*', "x"));
    patterns.chain(["a", "plugins/x", "pods/x/y/z"].map(str::to_owned)).collect()
}

fn contents() -> Vec<Content> {
    let ext = |clean, needs_recovery, uuid| {
        Content::Ext(ExtFacts {
            clean,
            needs_recovery,
            bytes: GIB,
            block_bytes: 4096,
            group_blocks: 32768,
            uuid,
            mounted: true,
            ..ExtFacts::default()
        })
    };
    let xfs = |uuid| {
        let (block_bytes, groups) = (4096, 4);
        Content::Xfs(XfsFacts {
            sound: true,
            in_progress: false,
            bytes: GIB,
            block_bytes,
            groups,
            uuid,
        })
    };
    let mut all = vec![Content::Blank, Content::Unknown { at: 0 }, xfs(OURS), xfs([1; 16])];
    for uuid in [OURS, [1; 16]] {
        all.extend([ext(true, false, uuid), ext(false, false, uuid), ext(false, true, uuid)]);
    }
    all
}

/// Returns each combination of what a request says of its disk, with what a look at it shows.
fn requests() -> Vec<(Stage, Content, Evidence)> {
    let mut all = Vec::new();
    for (origin, source) in
        Origin::ALL.iter().flat_map(|one| Source::ALL.iter().map(move |source| (*one, *source)))
    {
        for (content, bits) in
            contents().iter().flat_map(|one| (0..32).map(move |bits| (one, bits)))
        {
            let bit = |at: u32| bits & (1 << at) != 0;
            let no_replay = MountFlag::new("norecovery", None).expect("a flag");
            let request = Stage {
                disk: Disk { source, ..fixtures::disk(origin) },
                staging: KubeletPath::parse("/k/plugins/s").expect("a path"),
                fs: if matches!(content, Content::Xfs(_)) { FsType::Xfs } else { FsType::Ext4 },
                read_only: bit(0),
                flags: if bit(1) { vec![no_replay] } else { Vec::new() },
                format: Vec::new(),
            };
            let (unfinished, examined, used_raw) = (bit(2), bit(3), bit(4));
            let evidence = Evidence { uuid: OURS, unfinished, examined, used_raw };
            all.push((request, content.clone(), evidence));
        }
    }
    all
}

fn staged(ceiling: &Ceiling, case: &(Stage, Content, Evidence)) -> Result<StageDisk, Refusal> {
    let disk =
        DiskFacts { bytes: GIB, whole_bytes: GIB, device: DeviceNumber(7), read_only: false };
    let (request, content, evidence) = case;
    let images = ceiling.untrusted_images();
    stage_disk(request, &disk, content, *evidence, images).map(|act| act.into_act())
}

/// Returns something that is permitted under the settings and not without them.
fn excess(
    with: &Ceiling,
    without: &Ceiling,
    cases: &[(Stage, Content, Evidence)],
) -> Option<String> {
    const USES: [PlaceFor; 4] =
        [PlaceFor::Stage, PlaceFor::Unstage, PlaceFor::PublishFilesystem, PlaceFor::PublishBlock];
    for (path, used) in paths().iter().flat_map(|path| USES.map(|used| (path, used))) {
        let is_place = |ceiling: &Ceiling| {
            let [root, path] = ["/k".to_owned(), format!("/k/{path}")]
                .map(|path| KubeletPath::parse(&path).expect("a path"));
            let relative = path.strip_root(&root).expect("beneath the root");
            place::allowed(ceiling.places(), &[used], relative)
        };
        if is_place(with) && !is_place(without) {
            return Some(format!("{used:?} at {path}"));
        }
    }
    for case in cases {
        let judged = staged(with, case);
        if judged.is_ok() && judged != staged(without, case) {
            return Some(format!("{judged:?}: {case:?}"));
        }
    }
    let bits = |ceiling: &Ceiling| {
        let mode = ceiling.nodev_nosuid();
        [mode.staged(true), mode.staged(false), mode.kept()]
    };
    let takes_names =
        |ceiling: &Ceiling| ceiling.disks_without_serial() == DisksWithoutSerial::ByName;
    let clears = bits(with).iter().zip(bits(without)).any(|(with, without)| without & !with != 0);
    let offers = FsType::ALL.iter().any(|fs| with.offers(*fs) && !without.offers(*fs));
    let runs = TOOLS.iter().any(|tool| with.deadline(tool) > without.deadline(tool));
    let names = takes_names(with) && !takes_names(without);
    (clears || offers || runs || names).then(|| format!("{with:?}"))
}

/// Every combination of values that are not wider, under each policy.
#[test]
fn setting_not_called_wider_permits_no_more() {
    let mut combinations = vec![CeilingSettings::default()];
    for row in rows() {
        let values = values(row).filter(|value| row.effect(value) != Effect::Wider);
        let values: Vec<_> = values.collect();
        let with = |settings: &CeilingSettings, value: &str| {
            let mut settings = settings.clone();
            set(&mut settings, row.flag, value).then_some(settings)
        };
        let more: Vec<_> = combinations
            .iter()
            .flat_map(|settings| values.iter().filter_map(|value| with(settings, value)))
            .collect();
        combinations.extend(more);
    }
    assert!(combinations.len() > 50, "{}", combinations.len());
    let cases = requests();
    for (policy, settings) in
        Policy::ALL.iter().flat_map(|policy| combinations.iter().map(move |one| (*policy, one)))
    {
        let with = Ceiling::under(policy, settings.clone()).expect("settings");
        assert_eq!(excess(&with, &Ceiling::of(policy), &cases), None, "{settings:?}");
    }
}

/// The property above can fail.
#[test]
fn value_called_wider_permits_more() {
    let cases = requests();
    let mut found = Vec::new();
    for (row, value) in rows().flat_map(|row| values(row).map(move |value| (row, value))) {
        let mut settings = CeilingSettings::default();
        if row.effect(value) == Effect::Wider && set(&mut settings, row.flag, value) {
            let with = Ceiling::under(PRODUCTION, settings.clone()).expect("settings");
            assert!(excess(&with, &Ceiling::of(PRODUCTION), &cases).is_some(), "{settings:?}");
            found.push(row.flag);
        }
    }
    assert_eq!(found, ["--paths", "--untrusted-images"]);
}

#[test]
fn only_values_named_otherwise_are_not_wider() {
    for (given, expected) in [
        (&[][..], &[][..]),
        (&[("--paths", "kubernetes"), ("--untrusted-images", "deny")], &[]),
        (&[("--paths", "any")], &["--paths=any"]),
        (&[("--paths", "all")], &["--paths=all"]),
        (&[("--new-flag", "")], &["--new-flag="]),
        (&[("--allow-private-mounts", "")], &["--allow-private-mounts"]),
        (&[("--paths", "any"), ("--paths", "kubernetes")], &[]),
        (&[("--listen", "vsock://:1"), ("--listen", "unix:///h")], &["--listen=vsock://:1"]),
        (&[("--vsock-peers", "2"), ("--kubelet-root", "/")], &["--kubelet-root=/"]),
        (
            &[("--untrusted-images", "allow"), ("--paths", "any")],
            &["--paths=any", "--untrusted-images=allow"],
        ),
    ] {
        assert_eq!(wider(HELPER, given), expected, "{given:?}");
    }
    assert_eq!(wider("node-agent", &[("--helper", "hvsock:///h:1")]), [""; 0]);
    assert_eq!(wider("node-agent", &[("--helper", "vsock://2:1")]), ["--helper=vsock://2:1"]);
}

#[test]
fn digest_changes_with_each_wider_setting() {
    let digest = |policy: &Policy, wider: &[&str]| {
        let wider: Vec<String> = wider.iter().map(|one| (*one).to_owned()).collect();
        digest_in_force(policy, &wider)
    };
    assert_eq!(digest(&PRODUCTION, &[]), PRODUCTION.digest);
    assert_eq!(digest(&SANDBOX, &["--sandbox"]), SANDBOX.digest);
    let all = [
        digest(&PRODUCTION, &[]),
        digest(&PRODUCTION, &["--paths=any"]),
        digest(&PRODUCTION, &["--allow-private-mounts"]),
        digest(&PRODUCTION, &["--allow-private-mounts", "--paths=any"]),
        digest(&SANDBOX, &["--sandbox", "--paths=any"]),
        digest(&SANDBOX, &["--sandbox"]),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(one.len() == 64 && !all[..at].contains(one), "{one}");
    }
}

/// The manifest, which the chart renders with its defaults, and the unit of systemd.
#[test]
fn shipped_command_lines_permit_no_more() {
    let install = |name: &str| {
        let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
        std::fs::read_to_string(format!("{here}/../deploy/install/{name}")).expect(name)
    };
    let manifest = install("manifests/node.yaml");
    let of_container = |name: &str| -> Vec<String> {
        let (_, container) = manifest.split_once(&format!("- name: {name}\n")).expect(name);
        let (_, arguments) = container.split_once("args:\n").expect("arguments");
        let arguments = arguments.lines().map_while(|line| line.trim_start().strip_prefix("- "));
        arguments.map(str::to_owned).collect()
    };
    let unit = install("systemd/ebs-csi-mount-helper.service");
    let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a program");
    for (program, arguments) in [
        (HELPER, of_container("mount-helper")),
        ("node-agent", of_container("ebs-plugin")),
        (HELPER, started.split(' ').skip(1).map(str::to_owned).collect()),
    ] {
        let given: Vec<_> = arguments.iter().filter_map(|one| one.split_once('=')).collect();
        assert!(given.len() >= 2 && given.len() == arguments.len(), "{arguments:?}");
        assert_eq!(wider(program, &given), [""; 0]);
    }
}
