//! Each row about mount flags: a flag that the row allows and one that it denies.

use ebs_csi_policy::flag::{self, Effect, FLAGS, FlagRule, NotAllowed, REFUSED, ValueRule};
use ebs_csi_wire::{FsType, MountFlag};
use proptest::prelude::*;

/// Returns a value that the row accepts and a value that it refuses.
fn values(rule: &FlagRule) -> (Option<String>, Option<String>) {
    match rule.value {
        ValueRule::None => (None, Some("value".to_owned())),
        // This row refuses no value.
        ValueRule::Any => (Some("10s".to_owned()), None),
        ValueRule::Size => (Some("64k".to_owned()), Some("64kb".to_owned())),
        ValueRule::Number { low, high } => (Some(low.to_string()), Some((high + 1).to_string())),
        ValueRule::OneOf(words) => (Some(words[0].to_owned()), Some("neither".to_owned())),
        ValueRule::SelinuxLabel => (
            Some("system_u:object_r:container_file_t:s0:c1,c2".to_owned()),
            Some("system_u;object_r".to_owned()),
        ),
    }
}

fn flag(name: &str, value: Option<&str>) -> MountFlag {
    MountFlag::new(&name.replace('*', "systemd.device-timeout"), value)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn mount_flag_rule_admits_only_its_value() {
    for rule in FLAGS {
        let (good, bad) = values(rule);
        for fs in rule.file_systems {
            let good = flag(rule.name, good.as_deref());
            assert!(flag::rule(&good, *fs).is_ok(), "{good} on {fs}");
            let bad = flag(rule.name, bad.as_deref());
            // Another row may accept the flag with another kind of value (auto_da_alloc).
            let any = rule.value == ValueRule::Any;
            assert_eq!(rule.admits(&bad, *fs), any, "{bad} on {fs}");
        }
    }
}

#[test]
fn flag_is_denied_on_unlisted_file_systems() {
    for rule in FLAGS {
        let good = flag(rule.name, values(rule).0.as_deref());
        let listed = |fs| {
            FLAGS.iter().any(|other| other.name == rule.name && other.file_systems.contains(fs))
        };
        for fs in FsType::ALL.iter().filter(|fs| !listed(fs)) {
            let refused = flag::rule(&good, *fs).expect_err("on another file system");
            assert_eq!(refused.flag, good, "on {fs}");
        }
    }
}

#[test]
fn refused_flags_are_denied_on_every_file_system() {
    for row in REFUSED {
        let refused = match row.name.split_once('=') {
            Some((name, value)) => flag(name, Some(value)),
            None => flag(row.name, None),
        };
        let valued = (!row.name.contains('=')).then(|| flag(row.name, Some("1")));
        for refused in [Some(refused), valued].into_iter().flatten() {
            assert!(FsType::ALL.iter().all(|fs| flag::rule(&refused, *fs).is_err()), "{refused}");
        }
    }
}

#[test]
fn numeric_mount_flag_accepts_only_its_range() {
    for rule in FLAGS {
        let ValueRule::Number { low, high } = rule.value else {
            continue;
        };
        let fs = rule.file_systems[0];
        let admits = |value: &str| rule.admits(&flag(rule.name, Some(value)), fs);
        for good in [low, high] {
            assert!(admits(&good.to_string()), "{}={good}", rule.name);
        }
        let above = (high + 1).to_string();
        for bad in [&*above, "-1", "+1", "0x1", "1e1", "99999999999999999999"] {
            assert!(!admits(bad), "{}={bad}", rule.name);
        }
    }
}

fn plan(text: &str, fs: FsType, read_only: bool) -> Result<flag::MountPlan, NotAllowed> {
    flag::plan(&MountFlag::parse_all(text).expect("spelled as flags"), fs, read_only)
}

#[test]
fn mount_flags_split_into_attributes_and_parameters() {
    let plan =
        plan("noatime,nosuid,commit=30,_netdev,defaults,discard", FsType::Ext4, false).unwrap();
    assert_eq!(plan.set, 0x10 | 0x2);
    // mount_setattr(2) requires the whole field of access times to be cleared before a value is
    // set.
    assert_eq!(plan.clear & 0x70, 0x70);
    assert_eq!(plan.context, [("commit", Some("30".to_owned())), ("discard", None)]);
    assert!(!plan.read_only);
}

#[test]
fn a_later_flag_overrides_an_earlier_one() {
    assert_eq!(plan("nosuid,suid", FsType::Xfs, false).unwrap().set, 0);
    assert_eq!(plan("suid,nosuid", FsType::Xfs, false).unwrap().set, 0x2);
    assert_eq!(plan("nosuid,nosuid", FsType::Xfs, false).unwrap().set, 0x2);
    assert_eq!(plan("suid,suid", FsType::Xfs, false).unwrap().clear, 0x2);
    let commit = plan("commit=1,commit=2", FsType::Ext3, false).unwrap().context;
    assert_eq!(commit, [("commit", Some("2".to_owned()))]);
    assert!(!plan("ro,rw", FsType::Ext4, false).unwrap().read_only);
}

#[test]
fn a_read_only_request_stays_read_only() {
    assert_eq!(plan("", FsType::Ext4, true).unwrap().set, 1);
    assert_eq!(plan("ro", FsType::Ext4, false).unwrap().set, 1);
    assert_eq!(plan("rw", FsType::Ext4, true).unwrap_err().why, "the request is read-only");
}

/// What mount(8) of util-linux 2.38 and Linux 6.18 make of these options.
#[test]
fn options_of_mount_8_have_its_effect() {
    const ACCESS_TIMES: u64 = 0x70;
    for (text, fs, set) in [
        ("user", FsType::Ext4, 0xe),
        ("users", FsType::Xfs, 0xe),
        ("user,exec", FsType::Ext4, 0x6),
        ("owner", FsType::Ext3, 0x6),
        ("group", FsType::Xfs, 0x6),
        ("nouser,comment=of-somebody,x-systemd.automount,x-mount.mkdir=0700", FsType::Xfs, 0),
        ("norelatime", FsType::Ext4, 0),
        ("strictatime,norelatime", FsType::Ext4, 0x20),
        ("noatime,norelatime", FsType::Xfs, 0x10),
        ("iversion", FsType::Xfs, 0),
    ] {
        let plan = plan(text, fs, false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((plan.set, plan.context), (set, Vec::new()), "{text}");
        assert!(plan.clear & ACCESS_TIMES == 0 || text.contains("atime"), "{text}");
    }
    let iversion = plan("iversion", FsType::Ext4, false).expect("allowed").context;
    assert_eq!(iversion, [("i_version", None)]);
    for (text, fs) in [
        ("barrier,init_itable,jqfmt=vfsv1,dax=inode", FsType::Ext4),
        ("mb_optimize_scan=1,no_prefetch_block_bitmaps,dax=never", FsType::Ext3),
        ("lifetime,max_atomic_write=64k,max_atomic_write=4096,dax=never", FsType::Xfs),
    ] {
        assert!(plan(text, fs, false).is_ok(), "{text}");
    }
    for (text, fs) in [("dax", FsType::Ext4), ("dax=always", FsType::Xfs), ("X-mount", FsType::Xfs)]
    {
        let flags = MountFlag::parse_all(text);
        assert!(!flags.is_ok_and(|flags| flag::plan(&flags, fs, false).is_ok()), "{text}");
    }
}

#[test]
fn mount_without_replay_must_be_read_only() {
    for (text, fs) in
        [("noload", FsType::Ext4), ("norecovery", FsType::Ext3), ("norecovery", FsType::Xfs)]
    {
        let refused = plan(text, fs, false).expect_err("writable");
        assert!(refused.to_string().contains("read-only"), "{refused}");
        for plan in [plan(&format!("{text},ro"), fs, false), plan(text, fs, true)] {
            let plan = plan.unwrap_or_else(|error| panic!("{text} on {fs}: {error}"));
            assert!(plan.no_replay && plan.read_only && plan.context.is_empty(), "{text} on {fs}");
        }
        assert!(!plan("ro", fs, false).expect("allowed").no_replay);
    }
    assert!(plan("ro,noload", FsType::Xfs, false).is_err());
}

#[test]
fn list_of_flags_names_the_refused_one() {
    let parsed = |strings: &[&str], file_systems: &[FsType], read_only| {
        let strings: Vec<String> = strings.iter().map(ToString::to_string).collect();
        flag::parse(&strings, file_systems, read_only).map_err(|error| error.to_string())
    };
    let flags = parsed(&["noatime,commit=5", "noatime", ""], &[FsType::Ext4], false);
    assert_eq!(flags, Ok(vec![flag("noatime", None), flag("commit", Some("5"))]));
    // One file system must allow all flags together, and each of several file systems may.
    assert!(parsed(&["nouuid"], FsType::ALL, false).is_ok());
    let many: Vec<String> = (0..33).map(|at| format!("commit={at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (strings, fs, read_only, words) in [
        (
            &["noatime,nouuid"][..],
            &[FsType::Ext4][..],
            false,
            &["\"nouuid\" is not allowed on ext4", "mounts.toml"][..],
        ),
        (&["nouuid", "data=ordered"], FsType::ALL, false, &["\"nouuid\""]),
        (
            &["journal_path=/dev/x"],
            FsType::ALL,
            false,
            &["journal_path", "any file system", "another device"],
        ),
        (&["ro,rw"], FsType::ALL, true, &["\"rw\"", "read-only"]),
        (&["a b"], FsType::ALL, false, &["a b", "lower-case"]),
        (&many, FsType::ALL, false, &["33 mount flags"]),
    ] {
        let error = parsed(strings, fs, read_only).expect_err("refused");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

/// The flags dev, nodev and _netdev match the searched words but name no file.
#[test]
fn no_allowed_flag_names_another_file() {
    let names = FLAGS.iter().map(|rule| rule.name);
    for name in names.filter(|name| !["dev", "nodev", "_netdev"].contains(name)) {
        let words = ["dev", "path", "offset", "loop", "subvol", "helper"];
        assert!(!words.iter().any(|word| name.ends_with(word)), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn set_and_cleared_mount_attributes_never_overlap(picks in proptest::collection::vec(0..FLAGS.len(), 0..12)) {
        let flags: Vec<MountFlag> = picks
            .iter()
            .map(|at| flag(FLAGS[*at].name, values(&FLAGS[*at]).0.as_deref()))
            .collect();
        for fs in FsType::ALL {
            if let Ok(plan) = flag::plan(&flags, *fs, false) {
                // Access times are one field of three bits: it is cleared before a value is set.
                prop_assert_eq!(plan.set & plan.clear & !0x70, 0);
                prop_assert!(plan.context.len() <= flags.len());
            } else {
                let denied = |one: &MountFlag| match flag::rule(one, *fs) {
                    // Allowed with `ro` alone.
                    Ok(rule) => rule.effect == Effect::NoReplay,
                    Err(_) => true,
                };
                prop_assert!(flags.iter().any(denied));
            }
        }
    }
}

#[test]
fn flag_rules_change_only_known_mount_attributes() {
    for rule in FLAGS {
        if let Effect::Attribute { set, clear } = rule.effect {
            let known = 0x2 | 0x4 | 0x8 | 0x70 | 0x80 | 0x20_0000;
            assert_eq!((set | clear) & !known, 0, "{}", rule.name);
        }
    }
}
