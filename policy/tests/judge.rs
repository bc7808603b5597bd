//! The decisions, row by row: what is allowed, and which refusal each single fact causes.
use ebs_csi_policy::facts::{
    Content, DeviceNumber, DiskFacts, Evidence, ExtFacts, ExtLevel, MountFacts, Owner, PathFacts,
    VolumeMount, XfsFacts,
};
use ebs_csi_policy::judge::offline_growth;
use ebs_csi_policy::judge::untrusted_images::UntrustedImages;
use ebs_csi_policy::judge::{self, Preparation, Publish, Shown, StageDisk, StagePlace, Withdraw};
use ebs_csi_wire::{
    ContentState, Disk, Expand, FormatOptions, FsType, KubeletPath, Observation, Origin,
    PublishBlock, PublishFilesystem, Refusal, Signature, Source, Stage, VolumeId,
};
use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};

const DEVICE: DeviceNumber = DeviceNumber(77);
const GIB: u64 = 1 << 30;
const OURS: [u8; 16] = [0xeb; 16];
const DISK: DiskFacts = DiskFacts {
    bytes: 4 * GIB,
    whole_bytes: 4 * GIB,
    device: DEVICE,
};

fn kubelet(path: &str) -> KubeletPath {
    KubeletPath::parse(path).unwrap()
}

fn asked_disk() -> Disk {
    Disk {
        volume: VolumeId::parse("vol-0123456789abcdef0").unwrap(),
        device_hint: None,
        partition: None,
        size_at_attach: None,
        origin: Origin::Unknown,
        source: Source::Elsewhere,
    }
}

fn stage(change: impl FnOnce(&mut Stage)) -> Stage {
    let mut stage = Stage {
        disk: asked_disk(),
        staging: kubelet("/k/plugins/s"),
        fs: FsType::Ext4,
        read_only: false,
        flags: Vec::new(),
        format: FormatOptions::default(),
    };
    change(&mut stage);
    stage
}

fn publish(read_only: bool) -> PublishFilesystem {
    PublishFilesystem {
        disk: asked_disk(),
        staging: kubelet("/k/plugins/s"),
        target: kubelet("/k/pods/t"),
        read_only,
        flags: Vec::new(),
    }
}

fn block(read_only: bool) -> PublishBlock {
    PublishBlock {
        disk: asked_disk(),
        target: kubelet("/k/plugins/b"),
        read_only,
    }
}

const MOUNT: MountFacts = MountFacts {
    device: DEVICE,
    block: false,
    whole: true,
    read_only: false,
};

fn mounted(change: impl FnOnce(&mut MountFacts)) -> PathFacts {
    let mut mount = MOUNT;
    change(&mut mount);
    PathFacts::Mounted(mount)
}

fn mount_elsewhere() -> Vec<VolumeMount> {
    vec![VolumeMount {
        path: Some("plugins/other".to_owned()),
        read_only: false,
    }]
}

fn ext(change: impl FnOnce(&mut ExtFacts)) -> Content {
    let mut facts = ExtFacts {
        level: ExtLevel::Ext4,
        clean: true,
        needs_recovery: false,
        bytes: DISK.bytes,
        block_bytes: 4096,
        group_blocks: 32768,
        uuid: OURS,
        continues: false,
        outside_journal: false,
        default_options: 0xc,
        default_words: "discard,errors=panic".to_owned(),
        last_check: 0,
        mounted: true,
    };
    change(&mut facts);
    Content::Ext(facts)
}

fn cut_short(facts: &mut ExtFacts) {
    facts.clean = false;
    facts.mounted = false;
    facts.last_check = offline_growth::time(facts.uuid, 1_763_800_000);
}

fn xfs(change: impl FnOnce(&mut XfsFacts)) -> Content {
    let mut facts = XfsFacts {
        sound: true,
        in_progress: false,
        bytes: DISK.bytes,
        block_bytes: 4096,
        groups: 4,
        uuid: OURS,
    };
    change(&mut facts);
    Content::Xfs(facts)
}

/// For a partition, the size of the whole disk counts.
#[test]
fn disk_smaller_than_at_attach_is_refused() {
    assert_eq!(judge::disk(&asked_disk(), &DISK), Ok(()));
    for (size, expected) in [
        (DISK.bytes, Ok(())),
        (DISK.bytes - 1, Ok(())),
        (DISK.bytes + 1, Err(Refusal::DeviceTooSmall)),
    ] {
        let mut asked = asked_disk();
        asked.size_at_attach = NonZeroU64::new(size);
        assert_eq!(judge::disk(&asked, &DISK), expected);
    }
    // A partition is smaller than the disk that was attached.
    let mut asked = asked_disk();
    asked.partition = NonZeroU32::new(1);
    asked.size_at_attach = NonZeroU64::new(DISK.bytes);
    let part = DiskFacts { bytes: GIB, ..DISK };
    assert_eq!(judge::disk(&asked, &part), Ok(()));
}

/// A different mount, a second staging path and a new mount of a disk that is published raw are
/// refused.
#[test]
fn stage_needs_free_path_or_same_mount() {
    let asked = stage(|_| ());
    let reader = stage(|s| s.read_only = true);
    let fresh = |make| Ok(StagePlace::Fresh { make });
    for (asked, place, mounts, expected) in [
        (&asked, PathFacts::Missing, vec![], fresh(true)),
        (&asked, PathFacts::Directory, vec![], fresh(false)),
        (&asked, mounted(|_| ()), vec![], Ok(StagePlace::Already)),
        (
            &reader,
            mounted(|m| m.read_only = true),
            vec![],
            Ok(StagePlace::Already),
        ),
        // A publication of the volume is no second stage.
        (
            &asked,
            mounted(|_| ()),
            mount_elsewhere(),
            Ok(StagePlace::Already),
        ),
        (
            &asked,
            PathFacts::File,
            vec![],
            Err(Refusal::TargetOccupied),
        ),
        (
            &asked,
            PathFacts::Other,
            vec![],
            Err(Refusal::TargetOccupied),
        ),
        (
            &asked,
            PathFacts::Missing,
            mount_elsewhere(),
            Err(Refusal::StagedElsewhere),
        ),
        (
            &asked,
            PathFacts::Directory,
            mount_elsewhere(),
            Err(Refusal::StagedElsewhere),
        ),
        (
            &asked,
            mounted(|m| m.device.0 += 1),
            vec![],
            Err(Refusal::MountedDifferently),
        ),
        (
            &asked,
            mounted(|m| m.whole = false),
            vec![],
            Err(Refusal::MountedDifferently),
        ),
        (
            &asked,
            mounted(|m| m.block = true),
            vec![],
            Err(Refusal::MountedDifferently),
        ),
        (
            &asked,
            mounted(|m| m.read_only = true),
            vec![],
            Err(Refusal::MountedDifferently),
        ),
        (
            &reader,
            mounted(|_| ()),
            vec![],
            Err(Refusal::MountedDifferently),
        ),
    ] {
        let judged = judge::stage_place(asked, &DISK, &place, &mounts, &[]);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{place:?} {mounts:?}"
        );
        // A disk that is published raw, even read-only, gets no new mount; an existing mount is
        // unaffected.
        for read_only in [false, true] {
            let shown = [VolumeMount {
                path: Some("pods/p/volumeDevices/x".to_owned()),
                read_only,
            }];
            let judged = judge::stage_place(asked, &DISK, &place, &mounts, &shown);
            let expected = match expected {
                Ok(StagePlace::Fresh { .. }) => Err(Refusal::StillHeld),
                other => other,
            };
            assert_eq!(
                judged.map(judge::Authorized::into_act),
                expected,
                "{place:?}"
            );
        }
    }
}

const AS_IT_IS: StageDisk = StageDisk {
    preparation: Preparation::Nothing,
    no_replay: false,
    grow: false,
    growth_cut_short: false,
    ours: true,
    untold: false,
    continues: false,
};
const FORMAT: StageDisk = StageDisk {
    preparation: Preparation::Format,
    ..AS_IT_IS
};

#[test]
fn disk_content_decides_format_check_mount_or_refusal() {
    let ext4 = stage(|_| ());
    let ext3 = stage(|s| s.fs = FsType::Ext3);
    let xfs4 = stage(|s| s.fs = FsType::Xfs);
    let reader = stage(|s| s.read_only = true);
    let xfs_reader = stage(|s| {
        s.fs = FsType::Xfs;
        s.read_only = true;
    });
    let copy = stage(|s| s.disk.origin = Origin::Copy);
    let xfs_copy = stage(|s| {
        s.fs = FsType::Xfs;
        s.disk.origin = Origin::Copy;
    });
    let born_blank = stage(|s| s.disk.origin = Origin::Blank);
    let of_fs = |fs| Stage {
        fs,
        ..born_blank.clone()
    };
    let (ext3_born_blank, xfs_born_blank) = (of_fs(FsType::Ext3), of_fs(FsType::Xfs));
    let group = 32768 * 4096;
    let rows = [
        (&born_blank, Content::Blank, Ok(FORMAT)),
        (&ext3_born_blank, Content::Blank, Ok(FORMAT)),
        (&xfs_born_blank, Content::Blank, Ok(FORMAT)),
        // Only a part of the disk was read, and its origin is untold.
        (&ext4, Content::Blank, Err(Refusal::OriginUntold)),
        (&ext3, Content::Blank, Err(Refusal::OriginUntold)),
        (&xfs4, Content::Blank, Err(Refusal::OriginUntold)),
        (&reader, Content::Blank, Err(Refusal::ReadOnlyBlank)),
        (&copy, Content::Blank, Err(Refusal::CopyWithoutFilesystem)),
        (
            &ext4,
            Content::PartitionTable(Signature::Gpt),
            Err(Refusal::PartitionTable),
        ),
        (
            &ext4,
            Content::Foreign(Signature::Luks),
            Err(Refusal::ForeignContent),
        ),
        (
            &ext4,
            Content::Unknown { at: 3 },
            Err(Refusal::UnknownContent),
        ),
        // The controller's report that the volume began blank does not make the disk blank.
        (
            &born_blank,
            Content::Unknown { at: 3 },
            Err(Refusal::UnknownContent),
        ),
        (
            &born_blank,
            Content::Foreign(Signature::Lvm2),
            Err(Refusal::ForeignContent),
        ),
        // A damaged file system of the requested type has errors; one of another type is foreign.
        (
            &ext4,
            Content::Damaged(Signature::Ext4),
            Err(Refusal::FilesystemErrors),
        ),
        (
            &xfs4,
            Content::Damaged(Signature::Xfs),
            Err(Refusal::FilesystemErrors),
        ),
        (
            &ext3,
            Content::Damaged(Signature::Xfs),
            Err(Refusal::ForeignContent),
        ),
        (
            &xfs4,
            Content::Damaged(Signature::Ext2),
            Err(Refusal::ForeignContent),
        ),
        // ext
        (&ext4, ext(|_| ()), Ok(AS_IT_IS)),
        (&copy, ext(|_| ()), Ok(AS_IT_IS)),
        (&ext4, ext(|e| e.level = ExtLevel::Ext3), Ok(AS_IT_IS)),
        (&ext4, ext(|e| e.level = ExtLevel::Ext2), Ok(AS_IT_IS)),
        (&ext3, ext(|e| e.level = ExtLevel::Ext3), Ok(AS_IT_IS)),
        (&ext3, ext(|_| ()), Err(Refusal::ForeignContent)),
        (&xfs4, ext(|_| ()), Err(Refusal::ForeignContent)),
        (
            &ext4,
            ext(|e| e.clean = false),
            Ok(StageDisk {
                preparation: Preparation::Check,
                ..AS_IT_IS
            }),
        ),
        (
            &reader,
            ext(|e| {
                e.clean = false;
                e.needs_recovery = true;
            }),
            Ok(StageDisk {
                no_replay: true,
                ..AS_IT_IS
            }),
        ),
        (&reader, ext(|_| ()), Ok(AS_IT_IS)),
        (
            &ext4,
            ext(|e| e.bytes = DISK.bytes + 1),
            Err(Refusal::DeviceTooSmall),
        ),
        (
            &ext4,
            ext(|e| e.bytes = DISK.bytes - group),
            Ok(StageDisk {
                grow: true,
                ..AS_IT_IS
            }),
        ),
        (
            &ext4,
            ext(|e| e.bytes = DISK.bytes - group + 1),
            Ok(AS_IT_IS),
        ),
        (&reader, ext(|e| e.bytes = GIB), Ok(AS_IT_IS)),
        // A size of groups that no tool writes asks for no growth of a full disk.
        (&ext4, ext(|e| e.group_blocks = 0), Ok(AS_IT_IS)),
        (
            &ext4,
            ext(|e| e.continues = true),
            Ok(StageDisk {
                continues: true,
                ..AS_IT_IS
            }),
        ),
        (
            &ext4,
            ext(|e| e.outside_journal = true),
            Err(Refusal::SuperblockAsks),
        ),
        (
            &reader,
            ext(|e| e.default_words = "journal_dev=2065".to_owned()),
            Err(Refusal::SuperblockAsks),
        ),
        (
            &ext4,
            ext(|e| e.default_options = 0x80),
            Err(Refusal::SuperblockAsks),
        ),
        // A growth that did not finish.
        (
            &ext4,
            ext(cut_short),
            Ok(StageDisk {
                preparation: Preparation::Check,
                growth_cut_short: true,
                ..AS_IT_IS
            }),
        ),
        (&reader, ext(cut_short), Ok(AS_IT_IS)),
        // xfs
        (&xfs4, xfs(|_| ()), Ok(AS_IT_IS)),
        (&xfs_copy, xfs(|_| ()), Ok(AS_IT_IS)),
        (&ext4, xfs(|_| ()), Err(Refusal::ForeignContent)),
        (
            &xfs4,
            xfs(|x| x.sound = false),
            Err(Refusal::FilesystemErrors),
        ),
        (
            &xfs4,
            xfs(|x| x.bytes = DISK.bytes + 1),
            Err(Refusal::DeviceTooSmall),
        ),
        (
            &xfs_reader,
            xfs(|_| ()),
            Ok(StageDisk {
                no_replay: true,
                ..AS_IT_IS
            }),
        ),
        // An interrupted format: of this volume, of another one, on a copy.
        (&xfs4, xfs(|x| x.in_progress = true), Ok(FORMAT)),
        (
            &xfs4,
            xfs(|x| {
                x.in_progress = true;
                x.uuid = [0; 16];
            }),
            Err(Refusal::UnknownContent),
        ),
        (
            &xfs_copy,
            xfs(|x| x.in_progress = true),
            Err(Refusal::CopyWithoutFilesystem),
        ),
        (
            &xfs_reader,
            xfs(|x| x.in_progress = true),
            Err(Refusal::ReadOnlyBlank),
        ),
        (
            &ext4,
            xfs(|x| x.in_progress = true),
            Err(Refusal::ForeignContent),
        ),
    ];
    for (asked, content, expected) in rows {
        let evidence = Evidence {
            uuid: OURS,
            unfinished: matches!(&content, Content::Xfs(xfs) if xfs.in_progress),
            examined: false,
            used_raw: false,
        };
        let judged = judge::stage_disk(asked, &DISK, &content, evidence, UntrustedImages::Check);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{content:?} for {}",
            asked.fs
        );
    }
}

#[test]
fn disk_published_raw_is_never_formatted() {
    let asked = stage(|s| s.disk.origin = Origin::Blank);
    for unfinished in [false, true] {
        let evidence = Evidence {
            uuid: OURS,
            unfinished,
            examined: false,
            used_raw: true,
        };
        for content in [Content::Blank, Content::Unknown { at: 3 }] {
            let judged =
                judge::stage_disk(&asked, &DISK, &content, evidence, UntrustedImages::Check);
            let expected = if content == Content::Blank || unfinished {
                Refusal::UsedRaw
            } else {
                Refusal::UnknownContent
            };
            assert_eq!(judged, Err(expected), "{content:?}");
        }
    }
}

#[test]
fn disk_content_is_reported_with_its_state() {
    let content = |signature, state| Some(Observation::Content { signature, state });
    for (found, expected) in [
        (Content::Blank, None),
        (
            Content::Unknown { at: 3000 },
            Some(Observation::UnknownBytes { at: 3000 }),
        ),
        (
            Content::Foreign(Signature::Luks),
            content(Signature::Luks, ContentState::Sound),
        ),
        (
            Content::PartitionTable(Signature::Gpt),
            content(Signature::Gpt, ContentState::Sound),
        ),
        (
            Content::Damaged(Signature::Ext3),
            content(Signature::Ext3, ContentState::Damaged),
        ),
        (ext(|_| ()), content(Signature::Ext4, ContentState::Sound)),
        (
            ext(|e| e.bytes = DISK.bytes + 1),
            content(Signature::Ext4, ContentState::CutOff),
        ),
        (xfs(|_| ()), content(Signature::Xfs, ContentState::Sound)),
        (
            xfs(|x| x.sound = false),
            content(Signature::Xfs, ContentState::Damaged),
        ),
        (
            xfs(|x| x.in_progress = true),
            content(Signature::Xfs, ContentState::Unfinished),
        ),
        (
            xfs(|x| x.bytes = DISK.bytes + 1),
            content(Signature::Xfs, ContentState::CutOff),
        ),
    ] {
        assert_eq!(found.seen(DISK.bytes), expected, "{found:?}");
    }
}

#[test]
fn only_proven_unfinished_format_is_repeated() {
    let asked = stage(|_| ());
    let evidence = Evidence {
        uuid: OURS,
        unfinished: true,
        examined: false,
        used_raw: false,
    };
    for (content, expected) in [
        (Content::Unknown { at: 3 }, Ok(FORMAT)),
        (Content::Damaged(Signature::Ext4), Ok(FORMAT)),
        (
            Content::Damaged(Signature::Xfs),
            Err(Refusal::ForeignContent),
        ),
        (ext(|_| ()), Ok(AS_IT_IS)),
        (
            Content::Foreign(Signature::Luks),
            Err(Refusal::ForeignContent),
        ),
        (
            Content::PartitionTable(Signature::Gpt),
            Err(Refusal::PartitionTable),
        ),
        (xfs(|_| ()), Err(Refusal::ForeignContent)),
    ] {
        let judged = judge::stage_disk(&asked, &DISK, &content, evidence, UntrustedImages::Check);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{content:?}"
        );
    }
    // One byte differs from what the format writes.
    let beside = Evidence {
        unfinished: false,
        ..evidence
    };
    for (content, expected) in [
        (Content::Unknown { at: 3 }, Err(Refusal::UnknownContent)),
        (
            Content::Damaged(Signature::Ext4),
            Err(Refusal::FilesystemErrors),
        ),
    ] {
        let judged = judge::stage_disk(&asked, &DISK, &content, beside, UntrustedImages::Check);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{content:?}"
        );
    }
    // The mark of mkfs.xfs and this volume's identifier are not enough when one byte is unexpected.
    let on_xfs = stage(|s| s.fs = FsType::Xfs);
    for (evidence, content, expected) in [
        (evidence, xfs(|x| x.in_progress = true), Ok(FORMAT)),
        (evidence, Content::Damaged(Signature::Xfs), Ok(FORMAT)),
        (evidence, Content::Unknown { at: 3 }, Ok(FORMAT)),
        (
            evidence,
            Content::Damaged(Signature::Ext4),
            Err(Refusal::ForeignContent),
        ),
        (
            beside,
            xfs(|x| x.in_progress = true),
            Err(Refusal::UnknownContent),
        ),
        (
            beside,
            Content::Damaged(Signature::Xfs),
            Err(Refusal::FilesystemErrors),
        ),
    ] {
        let judged = judge::stage_disk(&on_xfs, &DISK, &content, evidence, UntrustedImages::Check);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{content:?}"
        );
    }
    let copy = stage(|s| s.disk.origin = Origin::Copy);
    assert_eq!(
        judge::stage_disk(
            &copy,
            &DISK,
            &Content::Unknown { at: 3 },
            evidence,
            UntrustedImages::Check
        )
        .err(),
        Some(Refusal::CopyWithoutFilesystem)
    );
}

/// A volume that began blank and a copy from this driver pass even `deny`. Under `check`, an untold
/// origin mounts without the full check.
#[test]
fn file_system_made_elsewhere_follows_untrusted_images() {
    use UntrustedImages::{Allow, Check, Deny};
    const ELSEWHERE: [u8; 16] = [9; 16];
    let foreign_ext = || ext(|e| e.uuid = ELSEWHERE);
    let foreign_xfs = || xfs(|x| x.uuid = ELSEWHERE);
    let dirty = || {
        ext(|e| {
            e.uuid = ELSEWHERE;
            e.clean = false;
            e.needs_recovery = true;
        })
    };
    let copied = |change: &dyn Fn(&mut Stage)| {
        stage(|s| {
            s.disk.origin = Origin::Copy;
            change(s);
        })
    };
    let ext4 = stage(|_| ());
    let copy = copied(&|_| ());
    let on_xfs = copied(&|s| s.fs = FsType::Xfs);
    let reader = copied(&|s| s.read_only = true);
    let xfs_reader = copied(&|s| {
        s.fs = FsType::Xfs;
        s.read_only = true;
    });
    let blank = stage(|s| s.disk.origin = Origin::Blank);
    let own_copy = copied(&|s| s.disk.source = Source::Own);
    let untold_copy = copied(&|s| s.disk.source = Source::Untold);
    let untold_reader = stage(|s| s.read_only = true);
    let theirs = StageDisk {
        ours: false,
        ..AS_IT_IS
    };
    let examine = StageDisk {
        preparation: Preparation::Examine,
        ..theirs
    };
    let untold = StageDisk {
        untold: true,
        ..theirs
    };
    let refused = Err(Refusal::UntrustedImage);
    for (asked, content, examined, rule, expected) in [
        (&copy, foreign_ext(), false, Check, Ok(examine)),
        (&copy, dirty(), false, Check, Ok(examine)),
        (&copy, foreign_ext(), true, Check, Ok(theirs)),
        (&copy, foreign_ext(), false, Allow, Ok(theirs)),
        (&copy, foreign_ext(), false, Deny, refused),
        (&copy, foreign_ext(), true, Deny, refused),
        // The origin is untold: the decision is the Go driver's.
        (&ext4, foreign_ext(), false, Check, Ok(untold)),
        (
            &ext4,
            dirty(),
            false,
            Check,
            Ok(StageDisk {
                preparation: Preparation::Check,
                ..untold
            }),
        ),
        (&untold_copy, foreign_ext(), false, Check, Ok(untold)),
        (
            &untold_reader,
            dirty(),
            false,
            Check,
            Ok(StageDisk {
                no_replay: true,
                ..untold
            }),
        ),
        (&ext4, ext(|_| ()), false, Check, Ok(AS_IT_IS)),
        (&ext4, foreign_ext(), false, Allow, Ok(theirs)),
        (&ext4, foreign_ext(), false, Deny, refused),
        (&untold_copy, foreign_ext(), false, Deny, refused),
        // A copy from this driver and cluster.
        (&own_copy, foreign_ext(), false, Check, Ok(AS_IT_IS)),
        (&own_copy, foreign_ext(), false, Deny, Ok(AS_IT_IS)),
        (&copy, ext(|_| ()), false, Deny, Ok(AS_IT_IS)),
        // Only mounts of this volume ever wrote to a volume that began blank.
        (&blank, foreign_ext(), false, Check, Ok(AS_IT_IS)),
        (&blank, foreign_ext(), false, Deny, Ok(AS_IT_IS)),
        (&blank, Content::Blank, false, Deny, Ok(FORMAT)),
        (
            &own_copy,
            Content::Blank,
            false,
            Check,
            Err(Refusal::CopyWithoutFilesystem),
        ),
        (&on_xfs, foreign_xfs(), false, Check, Ok(examine)),
        (&on_xfs, foreign_xfs(), false, Deny, refused),
        // A read-only stage examines the file system when the check needs no replay.
        (&reader, foreign_ext(), false, Check, Ok(examine)),
        (&reader, dirty(), false, Check, refused),
        (
            &reader,
            dirty(),
            false,
            Allow,
            Ok(StageDisk {
                no_replay: true,
                ..theirs
            }),
        ),
        (
            &xfs_reader,
            foreign_xfs(),
            false,
            Check,
            Ok(StageDisk {
                no_replay: true,
                ..examine
            }),
        ),
    ] {
        let evidence = Evidence {
            uuid: OURS,
            unfinished: false,
            examined,
            used_raw: false,
        };
        let judged = judge::stage_disk(asked, &DISK, &content, evidence, rule);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{content:?} {rule:?} examined: {examined}"
        );
    }
}

#[test]
fn publish_binds_only_staged_volume_to_free_target() {
    let bind = |make| Ok(Publish::Bind { make });
    let rows = [
        (false, mounted(|_| ()), PathFacts::Missing, bind(true)),
        (false, mounted(|_| ()), PathFacts::Directory, bind(false)),
        (true, mounted(|_| ()), PathFacts::Directory, bind(false)),
        (
            true,
            mounted(|m| m.read_only = true),
            PathFacts::Directory,
            bind(false),
        ),
        (
            false,
            mounted(|_| ()),
            mounted(|_| ()),
            Ok(Publish::Already),
        ),
        (
            true,
            mounted(|_| ()),
            mounted(|m| m.read_only = true),
            Ok(Publish::Already),
        ),
        (
            false,
            mounted(|m| m.read_only = true),
            PathFacts::Missing,
            Err(Refusal::MountedDifferently),
        ),
        (
            false,
            mounted(|_| ()),
            mounted(|m| m.read_only = true),
            Err(Refusal::MountedDifferently),
        ),
        (
            true,
            mounted(|_| ()),
            mounted(|_| ()),
            Err(Refusal::MountedDifferently),
        ),
        (
            false,
            mounted(|_| ()),
            mounted(|m| m.device.0 += 1),
            Err(Refusal::MountedDifferently),
        ),
        (
            false,
            mounted(|_| ()),
            mounted(|m| m.whole = false),
            Err(Refusal::MountedDifferently),
        ),
        (
            false,
            mounted(|_| ()),
            mounted(|m| m.block = true),
            Err(Refusal::MountedDifferently),
        ),
        (
            false,
            mounted(|_| ()),
            PathFacts::File,
            Err(Refusal::TargetOccupied),
        ),
        (
            false,
            mounted(|_| ()),
            PathFacts::Other,
            Err(Refusal::TargetOccupied),
        ),
        // The staging path is no mount of the volume: a pod's data would go to the node's root
        // disk.
        (
            false,
            PathFacts::Missing,
            PathFacts::Missing,
            Err(Refusal::NotStaged),
        ),
        (
            false,
            PathFacts::Directory,
            PathFacts::Missing,
            Err(Refusal::NotStaged),
        ),
        (
            false,
            mounted(|m| m.device.0 += 1),
            PathFacts::Missing,
            Err(Refusal::NotStaged),
        ),
        (
            false,
            mounted(|m| m.whole = false),
            PathFacts::Missing,
            Err(Refusal::NotStaged),
        ),
        (
            false,
            mounted(|m| m.block = true),
            PathFacts::Missing,
            Err(Refusal::NotStaged),
        ),
    ];
    for (read_only, staging, target, expected) in rows {
        let judged = judge::publish_filesystem(&publish(read_only), &DISK, &staging, &target);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{staging:?} -> {target:?}"
        );
    }
}

/// A second raw target is accepted only in the same mode, and a partition cannot be published
/// read-only.
#[test]
fn block_publish_needs_disk_without_mounts() {
    let raw = |read_only| {
        mounted(|m| {
            m.block = true;
            m.read_only = read_only;
        })
    };
    for (read_only, target, mounts, expected) in [
        (
            false,
            PathFacts::Missing,
            vec![],
            Ok(Publish::Bind { make: true }),
        ),
        (
            false,
            PathFacts::File,
            vec![],
            Ok(Publish::Bind { make: false }),
        ),
        (false, raw(false), vec![], Ok(Publish::Already)),
        (true, raw(true), vec![], Ok(Publish::Already)),
        (true, raw(false), vec![], Err(Refusal::MountedDifferently)),
        (false, raw(true), vec![], Err(Refusal::MountedDifferently)),
        (
            false,
            mounted(|_| ()),
            vec![],
            Err(Refusal::MountedDifferently),
        ),
        (
            false,
            mounted(|m| {
                m.block = true;
                m.device.0 += 1;
            }),
            vec![],
            Err(Refusal::MountedDifferently),
        ),
        (
            false,
            PathFacts::Directory,
            vec![],
            Err(Refusal::TargetOccupied),
        ),
        (
            false,
            PathFacts::Other,
            vec![],
            Err(Refusal::TargetOccupied),
        ),
        (
            false,
            PathFacts::Missing,
            mount_elsewhere(),
            Err(Refusal::StillHeld),
        ),
    ] {
        let judged = judge::publish_block(&block(read_only), &DISK, &target, &mounts, &[]);
        assert_eq!(
            judged.map(judge::Authorized::into_act),
            expected,
            "{target:?} {mounts:?}"
        );
    }
    for (read_only, expected) in [
        (false, Ok(Publish::Bind { make: true })),
        (true, Err(Refusal::Unsupported)),
    ] {
        let mut part = block(read_only);
        part.disk.partition = NonZeroU32::new(1);
        let judged = judge::publish_block(&part, &DISK, &PathFacts::Missing, &[], &[]);
        assert_eq!(judged.map(judge::Authorized::into_act), expected);
    }
    // The disk is already published at another target, so only the same mode is accepted.
    for (read_only, shown_read_only, expected) in [
        (false, false, Ok(Publish::Bind { make: true })),
        (true, true, Ok(Publish::Bind { make: true })),
        (true, false, Err(Refusal::StillHeld)),
        (false, true, Err(Refusal::StillHeld)),
    ] {
        let shown = [VolumeMount {
            path: Some("there".to_owned()),
            read_only: shown_read_only,
        }];
        let missing = PathFacts::Missing;
        let judged = judge::publish_block(&block(read_only), &DISK, &missing, &[], &shown);
        assert_eq!(judged.map(judge::Authorized::into_act), expected);
    }
}

/// Unpublish and unstage remove a mount whose owner is gone or unproved. Unstage leaves files and
/// raw targets in place.
#[test]
fn unstage_and_unpublish_refuse_another_volumes_mount() {
    let raw = || mounted(|m| m.block = true);
    for (place, owner, unstage, unpublish) in [
        (
            PathFacts::Missing,
            Owner::ThisVolume,
            Ok(Withdraw::Already),
            Ok(Withdraw::Already),
        ),
        (
            PathFacts::Directory,
            Owner::ThisVolume,
            Ok(Withdraw::RemoveDirectory),
            Ok(Withdraw::RemoveDirectory),
        ),
        (
            PathFacts::File,
            Owner::ThisVolume,
            Err(Refusal::TargetOccupied),
            Ok(Withdraw::RemoveFile),
        ),
        (
            PathFacts::Other,
            Owner::ThisVolume,
            Err(Refusal::TargetOccupied),
            Err(Refusal::TargetOccupied),
        ),
        (
            mounted(|_| ()),
            Owner::ThisVolume,
            Ok(Withdraw::Unmount { block: false }),
            Ok(Withdraw::Unmount { block: false }),
        ),
        (
            mounted(|_| ()),
            Owner::Gone,
            Ok(Withdraw::Unmount { block: false }),
            Ok(Withdraw::Unmount { block: false }),
        ),
        (
            mounted(|_| ()),
            Owner::Another,
            Err(Refusal::VolumeNotAtPath),
            Err(Refusal::VolumeNotAtPath),
        ),
        (
            mounted(|_| ()),
            Owner::Unproved,
            Ok(Withdraw::Unmount { block: false }),
            Ok(Withdraw::Unmount { block: false }),
        ),
        (
            raw(),
            Owner::ThisVolume,
            Err(Refusal::VolumeNotAtPath),
            Ok(Withdraw::Unmount { block: true }),
        ),
        (
            raw(),
            Owner::Another,
            Err(Refusal::VolumeNotAtPath),
            Err(Refusal::VolumeNotAtPath),
        ),
    ] {
        let judged = judge::unstage(&place, owner).map(judge::Authorized::into_act);
        assert_eq!(judged, unstage, "unstage {place:?} {owner:?}");
        let judged = judge::unpublish(&place, owner).map(judge::Authorized::into_act);
        assert_eq!(judged, unpublish, "unpublish {place:?} {owner:?}");
    }
}

/// NodeExpandVolume uses the same check.
#[test]
fn stats_path_must_be_mount_of_requested_volume() {
    for (place, owner, expected) in [
        (
            mounted(|_| ()),
            Owner::ThisVolume,
            Ok(Shown::Filesystem { read_only: false }),
        ),
        (
            mounted(|m| m.read_only = true),
            Owner::ThisVolume,
            Ok(Shown::Filesystem { read_only: true }),
        ),
        (
            mounted(|m| m.block = true),
            Owner::ThisVolume,
            Ok(Shown::Block),
        ),
        (
            mounted(|_| ()),
            Owner::Another,
            Err(Refusal::VolumeNotAtPath),
        ),
        (mounted(|_| ()), Owner::Gone, Err(Refusal::VolumeNotAtPath)),
        (
            mounted(|_| ()),
            Owner::Unproved,
            Err(Refusal::DeviceWithoutSerial),
        ),
        (
            PathFacts::Directory,
            Owner::Unproved,
            Err(Refusal::VolumeNotAtPath),
        ),
        (
            PathFacts::Directory,
            Owner::ThisVolume,
            Err(Refusal::VolumeNotAtPath),
        ),
        (
            PathFacts::Missing,
            Owner::ThisVolume,
            Err(Refusal::VolumeNotAtPath),
        ),
    ] {
        let judged = judge::shown(&place, owner).map(judge::Authorized::into_act);
        assert_eq!(judged, expected, "{place:?} {owner:?}");
    }
}

#[test]
fn disk_size_outside_expand_range_is_refused() {
    for (required, limit, expected) in [
        (0, 0, Ok(())),
        (DISK.bytes, DISK.bytes, Ok(())),
        (DISK.bytes + 1, 0, Err(Refusal::SizeOutOfRange)),
        (0, DISK.bytes - 1, Err(Refusal::SizeOutOfRange)),
    ] {
        let asked = Expand {
            volume: VolumeId::parse("vol-0123456789abcdef0").unwrap(),
            path: kubelet("/k/plugins/s"),
            required_bytes: NonZeroU64::new(required),
            limit_bytes: NonZeroU64::new(limit),
        };
        assert_eq!(judge::expand(&asked, DISK.bytes), expected);
    }
}

fn any_content() -> impl Strategy<Value = Content> {
    let level = prop_oneof![
        Just(ExtLevel::Ext2),
        Just(ExtLevel::Ext3),
        Just(ExtLevel::Ext4)
    ];
    let uuid = prop_oneof![Just(OURS), any::<[u8; 16]>()];
    prop_oneof![
        any::<u64>().prop_map(|at| Content::Unknown { at }),
        prop_oneof![
            Just(Signature::Ext2),
            Just(Signature::Ext4),
            Just(Signature::Xfs)
        ]
        .prop_map(Content::Damaged),
        Just(Content::PartitionTable(Signature::Mbr)),
        Just(Content::Foreign(Signature::Btrfs)),
        (level, any::<[bool; 2]>(), any::<[u64; 3]>(), uuid.clone()).prop_map(
            |(level, [clean, needs_recovery], [bytes, block_bytes, group_blocks], uuid)| {
                Content::Ext(ExtFacts {
                    level,
                    clean,
                    needs_recovery,
                    bytes,
                    block_bytes,
                    group_blocks,
                    uuid,
                    continues: clean,
                    outside_journal: false,
                    default_options: 0xc,
                    default_words: String::new(),
                    last_check: bytes ^ group_blocks,
                    mounted: needs_recovery,
                })
            }
        ),
        (any::<[bool; 2]>(), any::<[u64; 2]>(), uuid).prop_map(
            |([sound, in_progress], [bytes, block_bytes], uuid)| {
                Content::Xfs(XfsFacts {
                    sound,
                    in_progress,
                    bytes,
                    block_bytes,
                    groups: 4,
                    uuid,
                })
            }
        ),
    ]
}

proptest! {
    /// The most important property: a disk with any content is not formatted, whatever the request
    /// says about the disk. The exception is an unfinished format of this very volume, and even
    /// then a disk that was ever mounted is not formatted.
    #[test]
    fn content_is_overwritten_only_after_unfinished_format(
        content in any_content(),
        fs in prop_oneof![Just(FsType::Ext3), Just(FsType::Ext4), Just(FsType::Xfs)],
        origin in prop_oneof![Just(Origin::Unknown), Just(Origin::Blank), Just(Origin::Copy)],
        read_only: bool,
        unfinished: bool,
        used_raw: bool,
        bytes: u64,
    ) {
        let asked = stage(|s| {
            s.fs = fs;
            s.read_only = read_only;
            s.disk.origin = origin;
        });
        let evidence = Evidence { uuid: OURS, unfinished, examined: false, used_raw };
        let excused = match &content {
            Content::Xfs(x) => {
                x.in_progress && x.uuid == OURS && fs == FsType::Xfs && evidence.unfinished
            }
            Content::Unknown { .. } => evidence.unfinished,
            Content::Damaged(signature) => {
                evidence.unfinished && (*signature == Signature::Xfs) == (fs == FsType::Xfs)
            }
            _ => false,
        };
        let disk = DiskFacts { bytes, whole_bytes: bytes, device: DEVICE };
        if let Ok(act) = judge::stage_disk(&asked, &disk, &content, evidence, UntrustedImages::Check) {
            if act.act().preparation == Preparation::Format {
                prop_assert!(excused);
                prop_assert!(origin != Origin::Copy && !read_only && !used_raw);
            }
            // A read-only request changes nothing on the disk; an examination only reads.
            if read_only {
                prop_assert!(matches!(
                    act.act().preparation,
                    Preparation::Nothing | Preparation::Examine
                ));
                prop_assert!(!act.act().grow);
            }
        }
    }
}

#[test]
fn publications_beyond_limit_are_refused() {
    let most = judge::PUBLICATIONS;
    for (shown, expected) in [
        (0, Ok(())),
        (most - 1, Ok(())),
        (most, Err(Refusal::TooManyPublications)),
        (most + 1, Err(Refusal::TooManyPublications)),
    ] {
        assert_eq!(judge::one_more(shown), expected, "{shown}");
    }
}
