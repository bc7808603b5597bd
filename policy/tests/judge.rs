//! The decisions, row by row: what is allowed, and which refusal each single fact causes.
mod fixtures;

use ebs_csi_policy::facts::Content::{Damaged, Foreign, Unknown};
use ebs_csi_policy::facts::Owner::{Another, Gone, ThisVolume, Unproved};
use ebs_csi_policy::facts::PathFacts::{Directory, File, Missing, Other};
use ebs_csi_policy::facts::{
    Content, DeviceNumber, DiskFacts, Evidence, ExtFacts, ExtLevel, MountFacts, PathFacts,
    VolumeMount, XfsFacts,
};
use ebs_csi_policy::judge::untrusted_images::UntrustedImages::{Allow, Check, Deny};
use ebs_csi_policy::judge::{
    self, Authorized, Preparation, Publish, Shown, StageDisk, StagePlace, Withdraw, offline_growth,
};
use ebs_csi_wire::Refusal::{
    CopyWithoutFilesystem, DeviceReadOnly, DeviceTooSmall, DeviceWithoutSerial, FilesystemErrors,
    ForeignContent, MountedDifferently, NotStaged, OriginUntold, PartitionTable, ReadOnlyBlank,
    SizeOutOfRange, StagedElsewhere, StillHeld, SuperblockAsks, TargetOccupied,
    TooManyPublications, UnknownContent, Unsupported, UntrustedImage, UsedRaw, VolumeNotAtPath,
};
use ebs_csi_wire::{
    ContentState, Disk, Expand, FsType, KubeletPath, MountFlag, Observation, Origin, PublishBlock,
    PublishFilesystem, Refusal, Signature, Source, Stage, VolumeId,
};
use proptest::prelude::*;
use proptest::sample::select;
use std::num::{NonZeroU32, NonZeroU64};

const DEVICE: DeviceNumber = DeviceNumber(77);
const GIB: u64 = 1 << 30;
const OURS: [u8; 16] = [0xeb; 16];
const DISK: DiskFacts =
    DiskFacts { bytes: 4 * GIB, whole_bytes: 4 * GIB, device: DEVICE, read_only: false };

fn kubelet(path: &str) -> KubeletPath {
    KubeletPath::parse(path).unwrap()
}

fn requested_disk() -> Disk {
    fixtures::disk(Origin::Unknown)
}

fn stage(change: impl FnOnce(&mut Stage)) -> Stage {
    let mut stage = Stage {
        disk: requested_disk(),
        staging: kubelet("/k/plugins/s"),
        fs: FsType::Ext4,
        read_only: false,
        flags: Vec::new(),
        format: Vec::new(),
    };
    change(&mut stage);
    stage
}

fn publish(read_only: bool) -> PublishFilesystem {
    PublishFilesystem {
        disk: requested_disk(),
        staging: kubelet("/k/plugins/s"),
        target: kubelet("/k/pods/t"),
        read_only,
        flags: Vec::new(),
    }
}

fn block(read_only: bool) -> PublishBlock {
    PublishBlock { disk: requested_disk(), target: kubelet("/k/plugins/b"), read_only }
}

const MOUNT: MountFacts =
    MountFacts { device: DEVICE, block: false, whole: true, read_only: false };
const MOUNTED: PathFacts = PathFacts::Mounted(MOUNT);
const READ_ONLY: PathFacts = PathFacts::Mounted(MountFacts { read_only: true, ..MOUNT });
const PART: PathFacts = PathFacts::Mounted(MountFacts { whole: false, ..MOUNT });
const RAW: PathFacts = PathFacts::Mounted(MountFacts { block: true, ..MOUNT });
const OTHER_DEVICE: PathFacts =
    PathFacts::Mounted(MountFacts { device: DeviceNumber(DEVICE.0 + 1), ..MOUNT });

fn mount_elsewhere() -> Vec<VolumeMount> {
    vec![VolumeMount { path: Some("plugins/other".to_owned()), read_only: false }]
}

fn ext(change: impl FnOnce(&mut ExtFacts)) -> Content {
    let mut facts = ExtFacts {
        clean: true,
        bytes: DISK.bytes,
        block_bytes: 4096,
        group_blocks: 32768,
        uuid: OURS,
        default_options: 0xc,
        default_words: "discard,errors=panic".to_owned(),
        mounted: true,
        ..ExtFacts::default()
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

/// Returns the decision about a disk with this content, with the rule `check`.
fn staged(request: &Stage, content: &Content, evidence: Evidence) -> Result<StageDisk, Refusal> {
    judge::stage_disk(request, &DISK, content, evidence, Check).map(Authorized::into_act)
}

#[test]
fn disk_smaller_than_at_attach_is_refused() {
    assert_eq!(judge::disk(&requested_disk(), &DISK), Ok(()));
    for (size, expected) in
        [(DISK.bytes, Ok(())), (DISK.bytes - 1, Ok(())), (DISK.bytes + 1, Err(DeviceTooSmall))]
    {
        let mut request = requested_disk();
        request.size_at_attach = NonZeroU64::new(size);
        assert_eq!(judge::disk(&request, &DISK), expected);
    }
    // A partition is smaller than the disk that was attached.
    let mut request = requested_disk();
    request.partition = NonZeroU32::new(1);
    request.size_at_attach = NonZeroU64::new(DISK.bytes);
    let part = DiskFacts { bytes: GIB, ..DISK };
    assert_eq!(judge::disk(&request, &part), Ok(()));
}

#[test]
fn stage_needs_free_path_or_same_mount() {
    let request = stage(|_| ());
    let reader = stage(|s| s.read_only = true);
    let fresh = |make| Ok(StagePlace::Fresh { make });
    for (request, place, mounts, expected) in [
        (&request, Missing, vec![], fresh(true)),
        (&request, Directory, vec![], fresh(false)),
        (&request, MOUNTED, vec![], Ok(StagePlace::Already)),
        (&reader, READ_ONLY, vec![], Ok(StagePlace::Already)),
        // A publication of the volume is no second stage.
        (&request, MOUNTED, mount_elsewhere(), Ok(StagePlace::Already)),
        (&request, File, vec![], Err(TargetOccupied)),
        (&request, Other, vec![], Err(TargetOccupied)),
        (&request, Missing, mount_elsewhere(), Err(StagedElsewhere)),
        (&request, Directory, mount_elsewhere(), Err(StagedElsewhere)),
        (&request, OTHER_DEVICE, vec![], Err(MountedDifferently)),
        (&request, PART, vec![], Err(MountedDifferently)),
        (&request, RAW, vec![], Err(MountedDifferently)),
        (&request, READ_ONLY, vec![], Err(MountedDifferently)),
        (&reader, MOUNTED, vec![], Err(MountedDifferently)),
    ] {
        let staged = |shown: &[VolumeMount]| {
            judge::stage_place(request, &DISK, &place, &mounts, shown).map(Authorized::into_act)
        };
        assert_eq!(staged(&[]), expected, "{place:?} {mounts:?}");
        // A disk that is published raw, even read-only, gets no new mount; an existing mount is
        // unaffected.
        for read_only in [false, true] {
            let shown = VolumeMount { path: Some("pods/p/volumeDevices/x".to_owned()), read_only };
            let expected = match expected {
                Ok(StagePlace::Fresh { .. }) => Err(StillHeld),
                other => other,
            };
            assert_eq!(staged(&[shown]), expected, "{place:?}");
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
const FORMAT: StageDisk = StageDisk { preparation: Preparation::Format, ..AS_IT_IS };
const CHECK: StageDisk = StageDisk { preparation: Preparation::Check, ..AS_IT_IS };
const NO_REPLAY: StageDisk = StageDisk { no_replay: true, ..AS_IT_IS };
const GROW: StageDisk = StageDisk { grow: true, ..AS_IT_IS };
const CONTINUES: StageDisk = StageDisk { continues: true, ..AS_IT_IS };
const CHECK_CUT_SHORT: StageDisk = StageDisk { growth_cut_short: true, ..CHECK };
/// What is known of a disk of this volume that holds nothing unfinished.
const EVIDENCE: Evidence =
    Evidence { uuid: OURS, unfinished: false, examined: false, used_raw: false };

#[test]
fn disk_content_decides_format_check_mount_or_refusal() {
    let ext4 = stage(|_| ());
    let ext3 = stage(|s| s.fs = FsType::Ext3);
    let xfs4 = stage(|s| s.fs = FsType::Xfs);
    let reader = stage(|s| s.read_only = true);
    let xfs_reader = Stage { read_only: true, ..xfs4.clone() };
    let flags = |flag| MountFlag::parse_all(flag).expect("flags");
    let unreplayed = Stage { flags: flags("noload"), ..reader.clone() };
    let writable_unreplayed = Stage { read_only: false, ..unreplayed.clone() };
    let xfs_unreplayed = Stage { flags: flags("norecovery"), ..xfs_reader.clone() };
    let copy = stage(|s| s.disk.origin = Origin::Copy);
    let xfs_copy = Stage { fs: FsType::Xfs, ..copy.clone() };
    let born_blank = stage(|s| s.disk.origin = Origin::Blank);
    let of_fs = |fs| Stage { fs, ..born_blank.clone() };
    let (ext3_born_blank, xfs_born_blank) = (of_fs(FsType::Ext3), of_fs(FsType::Xfs));
    let dirty = || ext(|e| (e.clean, e.needs_recovery) = (false, true));
    let group = 32768 * 4096;
    let rows = [
        (&born_blank, Content::Blank, Ok(FORMAT)),
        (&ext3_born_blank, Content::Blank, Ok(FORMAT)),
        (&xfs_born_blank, Content::Blank, Ok(FORMAT)),
        // Only a part of the disk was read, and its origin is untold.
        (&ext4, Content::Blank, Err(OriginUntold)),
        (&ext3, Content::Blank, Err(OriginUntold)),
        (&xfs4, Content::Blank, Err(OriginUntold)),
        (&reader, Content::Blank, Err(ReadOnlyBlank)),
        (&copy, Content::Blank, Err(CopyWithoutFilesystem)),
        (&ext4, Content::PartitionTable(Signature::Gpt), Err(PartitionTable)),
        (&ext4, Foreign(Signature::Luks), Err(ForeignContent)),
        (&ext4, Unknown { at: 3 }, Err(UnknownContent)),
        // The controller's report that the volume began blank does not make the disk blank.
        (&born_blank, Unknown { at: 3 }, Err(UnknownContent)),
        (&born_blank, Foreign(Signature::Lvm2), Err(ForeignContent)),
        // A damaged file system of the requested type has errors; one of another type is foreign.
        (&ext4, Damaged(Signature::Ext4), Err(FilesystemErrors)),
        (&xfs4, Damaged(Signature::Xfs), Err(FilesystemErrors)),
        (&ext3, Damaged(Signature::Xfs), Err(ForeignContent)),
        (&xfs4, Damaged(Signature::Ext2), Err(ForeignContent)),
        // ext
        (&ext4, ext(|_| ()), Ok(AS_IT_IS)),
        (&copy, ext(|_| ()), Ok(AS_IT_IS)),
        (&ext4, ext(|e| e.level = ExtLevel::Ext3), Ok(AS_IT_IS)),
        (&ext4, ext(|e| e.level = ExtLevel::Ext2), Ok(AS_IT_IS)),
        (&ext3, ext(|e| e.level = ExtLevel::Ext3), Ok(AS_IT_IS)),
        (&ext3, ext(|_| ()), Err(ForeignContent)),
        (&xfs4, ext(|_| ()), Err(ForeignContent)),
        (&ext4, ext(|e| e.clean = false), Ok(CHECK)),
        // A read-only request needs the replay as well, and no other check.
        (&reader, dirty(), Ok(CHECK)),
        (&reader, ext(|e| e.clean = false), Ok(AS_IT_IS)),
        (&reader, ext(|_| ()), Ok(AS_IT_IS)),
        (&unreplayed, dirty(), Ok(NO_REPLAY)),
        (&unreplayed, ext(|_| ()), Ok(AS_IT_IS)),
        (&writable_unreplayed, dirty(), Ok(CHECK)),
        (&ext4, ext(|e| e.bytes = DISK.bytes + 1), Err(DeviceTooSmall)),
        (&ext4, ext(|e| e.bytes = DISK.bytes - group), Ok(GROW)),
        (&ext4, ext(|e| e.bytes = DISK.bytes - group + 1), Ok(AS_IT_IS)),
        (&reader, ext(|e| e.bytes = GIB), Ok(AS_IT_IS)),
        // A group size of 0, which no tool writes, makes no full disk grow.
        (&ext4, ext(|e| e.group_blocks = 0), Ok(AS_IT_IS)),
        (&ext4, ext(|e| e.continues = true), Ok(CONTINUES)),
        (&ext4, ext(|e| e.outside_journal = true), Err(SuperblockAsks)),
        (&reader, ext(|e| e.default_words = "journal_dev=2065".to_owned()), Err(SuperblockAsks)),
        (&ext4, ext(|e| e.default_options = 0x80), Err(SuperblockAsks)),
        // A growth that did not finish.
        (&ext4, ext(cut_short), Ok(CHECK_CUT_SHORT)),
        (&reader, ext(cut_short), Ok(AS_IT_IS)),
        // xfs
        (&xfs4, xfs(|_| ()), Ok(AS_IT_IS)),
        (&xfs_copy, xfs(|_| ()), Ok(AS_IT_IS)),
        (&ext4, xfs(|_| ()), Err(ForeignContent)),
        (&xfs4, xfs(|x| x.sound = false), Err(FilesystemErrors)),
        (&xfs4, xfs(|x| x.bytes = DISK.bytes + 1), Err(DeviceTooSmall)),
        (&xfs_reader, xfs(|_| ()), Ok(AS_IT_IS)),
        (&xfs_unreplayed, xfs(|_| ()), Ok(NO_REPLAY)),
        // An interrupted format: of this volume, of another one, on a copy.
        (&xfs4, xfs(|x| x.in_progress = true), Ok(FORMAT)),
        (&xfs4, xfs(|x| (x.in_progress, x.uuid) = (true, [0; 16])), Err(UnknownContent)),
        (&xfs_copy, xfs(|x| x.in_progress = true), Err(CopyWithoutFilesystem)),
        (&xfs_reader, xfs(|x| x.in_progress = true), Err(ReadOnlyBlank)),
        (&ext4, xfs(|x| x.in_progress = true), Err(ForeignContent)),
    ];
    for (request, content, expected) in rows {
        let evidence = Evidence {
            unfinished: matches!(&content, Content::Xfs(xfs) if xfs.in_progress),
            ..EVIDENCE
        };
        assert_eq!(staged(request, &content, evidence), expected, "{content:?} for {}", request.fs);
    }
}

#[test]
fn disk_published_raw_is_never_formatted() {
    let request = stage(|s| s.disk.origin = Origin::Blank);
    for unfinished in [false, true] {
        let evidence = Evidence { unfinished, used_raw: true, ..EVIDENCE };
        for content in [Content::Blank, Unknown { at: 3 }] {
            let expected =
                if content == Content::Blank || unfinished { UsedRaw } else { UnknownContent };
            assert_eq!(staged(&request, &content, evidence), Err(expected), "{content:?}");
        }
    }
}

#[test]
fn disk_content_is_reported_with_its_state() {
    let content = |signature, state| Some(Observation::Content { signature, state });
    for (found, expected) in [
        (Content::Blank, None),
        (Unknown { at: 3000 }, Some(Observation::UnknownBytes { at: 3000 })),
        (Foreign(Signature::Luks), content(Signature::Luks, ContentState::Sound)),
        (Content::PartitionTable(Signature::Gpt), content(Signature::Gpt, ContentState::Sound)),
        (Damaged(Signature::Ext3), content(Signature::Ext3, ContentState::Damaged)),
        (ext(|_| ()), content(Signature::Ext4, ContentState::Sound)),
        (ext(|e| e.bytes = DISK.bytes + 1), content(Signature::Ext4, ContentState::CutOff)),
        (xfs(|_| ()), content(Signature::Xfs, ContentState::Sound)),
        (xfs(|x| x.sound = false), content(Signature::Xfs, ContentState::Damaged)),
        (xfs(|x| x.in_progress = true), content(Signature::Xfs, ContentState::Unfinished)),
        (xfs(|x| x.bytes = DISK.bytes + 1), content(Signature::Xfs, ContentState::CutOff)),
    ] {
        assert_eq!(found.seen(DISK.bytes), expected, "{found:?}");
    }
}

#[test]
fn only_proven_unfinished_format_is_repeated() {
    let request = stage(|_| ());
    let on_xfs = stage(|s| s.fs = FsType::Xfs);
    let copy = stage(|s| s.disk.origin = Origin::Copy);
    let evidence = Evidence { unfinished: true, ..EVIDENCE };
    for (request, evidence, content, expected) in [
        (&request, evidence, Unknown { at: 3 }, Ok(FORMAT)),
        (&request, evidence, Damaged(Signature::Ext4), Ok(FORMAT)),
        (&request, evidence, Damaged(Signature::Xfs), Err(ForeignContent)),
        (&request, evidence, ext(|_| ()), Ok(AS_IT_IS)),
        (&request, evidence, Foreign(Signature::Luks), Err(ForeignContent)),
        (&request, evidence, Content::PartitionTable(Signature::Gpt), Err(PartitionTable)),
        (&request, evidence, xfs(|_| ()), Err(ForeignContent)),
        (&on_xfs, evidence, Damaged(Signature::Xfs), Ok(FORMAT)),
        (&on_xfs, evidence, Unknown { at: 3 }, Ok(FORMAT)),
        (&on_xfs, evidence, Damaged(Signature::Ext4), Err(ForeignContent)),
        // The mark of mkfs.xfs and this volume's identifier are not enough: one byte differs from
        // what the format writes.
        (&on_xfs, EVIDENCE, xfs(|x| x.in_progress = true), Err(UnknownContent)),
        (&copy, evidence, Unknown { at: 3 }, Err(CopyWithoutFilesystem)),
    ] {
        assert_eq!(staged(request, &content, evidence), expected, "{content:?} for {}", request.fs);
    }
}

#[test]
fn unreplayed_journal_needs_writable_disk_unless_forbidden() {
    let reader = stage(|s| s.read_only = true);
    let noload = MountFlag::parse_all("noload").expect("flags");
    let unreplayed = Stage { flags: noload, ..reader.clone() };
    let disk = DiskFacts { read_only: true, ..DISK };
    for (request, needs_recovery, expected) in [
        (&reader, true, Err(DeviceReadOnly)),
        (&reader, false, Ok(AS_IT_IS)),
        (&unreplayed, true, Ok(NO_REPLAY)),
    ] {
        let content = ext(|e| (e.clean, e.needs_recovery) = (!needs_recovery, needs_recovery));
        let judged = judge::stage_disk(request, &disk, &content, EVIDENCE, Check);
        assert_eq!(judged.map(Authorized::into_act), expected, "{request:?}");
    }
}

/// A volume that began blank and a copy from this driver pass even `deny`. Under `check`, an untold
/// origin mounts without the full check.
#[test]
fn file_system_made_elsewhere_follows_untrusted_images() {
    const ELSEWHERE: [u8; 16] = [9; 16];
    let foreign_ext = || ext(|e| e.uuid = ELSEWHERE);
    let foreign_xfs = || xfs(|x| x.uuid = ELSEWHERE);
    let dirty = || ext(|e| (e.uuid, e.clean, e.needs_recovery) = (ELSEWHERE, false, true));
    let copy_of = |source| stage(|s| (s.disk.origin, s.disk.source) = (Origin::Copy, source));
    let ext4 = stage(|_| ());
    let copy = copy_of(Source::Elsewhere);
    let on_xfs = Stage { fs: FsType::Xfs, ..copy.clone() };
    let reader = Stage { read_only: true, ..copy.clone() };
    let xfs_reader = Stage { read_only: true, ..on_xfs.clone() };
    let blank = stage(|s| s.disk.origin = Origin::Blank);
    let own_copy = copy_of(Source::Own);
    let untold_copy = copy_of(Source::Untold);
    let untold_reader = stage(|s| s.read_only = true);
    let noload = MountFlag::parse_all("noload").expect("flags");
    let unreplayed = Stage { flags: noload, ..reader.clone() };
    let theirs = StageDisk { ours: false, ..AS_IT_IS };
    let examine = StageDisk { preparation: Preparation::Examine, ..theirs };
    let untold = StageDisk { untold: true, ..theirs };
    let checked = |disk| StageDisk { preparation: Preparation::Check, ..disk };
    let refused = Err(UntrustedImage);
    for (request, content, examined, rule, expected) in [
        (&copy, foreign_ext(), false, Check, Ok(examine)),
        (&copy, dirty(), false, Check, Ok(examine)),
        (&copy, foreign_ext(), true, Check, Ok(theirs)),
        (&copy, foreign_ext(), false, Allow, Ok(theirs)),
        (&copy, foreign_ext(), false, Deny, refused),
        (&copy, foreign_ext(), true, Deny, refused),
        // The origin is untold: the decision is the Go driver's.
        (&ext4, foreign_ext(), false, Check, Ok(untold)),
        (&ext4, dirty(), false, Check, Ok(checked(untold))),
        (&untold_copy, foreign_ext(), false, Check, Ok(untold)),
        (&untold_reader, dirty(), false, Check, Ok(checked(untold))),
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
        (&own_copy, Content::Blank, false, Check, Err(CopyWithoutFilesystem)),
        (&on_xfs, foreign_xfs(), false, Check, Ok(examine)),
        (&on_xfs, foreign_xfs(), false, Deny, refused),
        (&reader, foreign_ext(), false, Check, Ok(examine)),
        (&reader, dirty(), false, Check, Ok(examine)),
        (&reader, dirty(), false, Allow, Ok(checked(theirs))),
        (&xfs_reader, foreign_xfs(), false, Check, Ok(examine)),
        // A check needs the replay that the request forbids.
        (&unreplayed, foreign_ext(), false, Check, Ok(examine)),
        (&unreplayed, dirty(), false, Check, refused),
        (&unreplayed, dirty(), false, Allow, Ok(StageDisk { no_replay: true, ..theirs })),
    ] {
        let evidence = Evidence { examined, ..EVIDENCE };
        let judged = judge::stage_disk(request, &DISK, &content, evidence, rule);
        let judged = judged.map(Authorized::into_act);
        assert_eq!(judged, expected, "{content:?} {rule:?} examined: {examined}");
    }
}

#[test]
fn publish_binds_only_staged_volume_to_free_target() {
    let bind = |make| Ok(Publish::Bind { make });
    let rows = [
        (false, MOUNTED, Missing, bind(true)),
        (false, MOUNTED, Directory, bind(false)),
        (true, MOUNTED, Directory, bind(false)),
        (true, READ_ONLY, Directory, bind(false)),
        (false, MOUNTED, MOUNTED, Ok(Publish::Already)),
        (true, MOUNTED, READ_ONLY, Ok(Publish::Already)),
        (false, READ_ONLY, Missing, Err(MountedDifferently)),
        (false, MOUNTED, READ_ONLY, Err(MountedDifferently)),
        (true, MOUNTED, MOUNTED, Err(MountedDifferently)),
        (false, MOUNTED, OTHER_DEVICE, Err(MountedDifferently)),
        (false, MOUNTED, PART, Err(MountedDifferently)),
        (false, MOUNTED, RAW, Err(MountedDifferently)),
        (false, MOUNTED, File, Err(TargetOccupied)),
        (false, MOUNTED, Other, Err(TargetOccupied)),
        // The staging path is no mount of the volume: a pod's data would go to the node's root
        // disk.
        (false, Missing, Missing, Err(NotStaged)),
        (false, Directory, Missing, Err(NotStaged)),
        (false, OTHER_DEVICE, Missing, Err(NotStaged)),
        (false, PART, Missing, Err(NotStaged)),
        (false, RAW, Missing, Err(NotStaged)),
    ];
    for (read_only, staging, target, expected) in rows {
        let judged = judge::publish_filesystem(&publish(read_only), &DISK, &staging, &target);
        assert_eq!(judged.map(Authorized::into_act), expected, "{staging:?} -> {target:?}");
    }
}

#[test]
fn block_publish_needs_disk_without_mounts() {
    let raw = |read_only| PathFacts::Mounted(MountFacts { block: true, read_only, ..MOUNT });
    let another = DeviceNumber(DEVICE.0 + 1);
    let other_raw = PathFacts::Mounted(MountFacts { block: true, device: another, ..MOUNT });
    let published = |request: &PublishBlock,
                     target: &PathFacts,
                     mounts: &[VolumeMount],
                     shown: &[VolumeMount]| {
        judge::publish_block(request, &DISK, target, mounts, shown).map(Authorized::into_act)
    };
    for (read_only, target, mounts, expected) in [
        (false, Missing, vec![], Ok(Publish::Bind { make: true })),
        (false, File, vec![], Ok(Publish::Bind { make: false })),
        (false, raw(false), vec![], Ok(Publish::Already)),
        (true, raw(true), vec![], Ok(Publish::Already)),
        (true, raw(false), vec![], Err(MountedDifferently)),
        (false, raw(true), vec![], Err(MountedDifferently)),
        (false, MOUNTED, vec![], Err(MountedDifferently)),
        (false, other_raw, vec![], Err(MountedDifferently)),
        (false, Directory, vec![], Err(TargetOccupied)),
        (false, Other, vec![], Err(TargetOccupied)),
        (false, Missing, mount_elsewhere(), Err(StillHeld)),
    ] {
        let judged = published(&block(read_only), &target, &mounts, &[]);
        assert_eq!(judged, expected, "{target:?} {mounts:?}");
    }
    for (read_only, expected) in
        [(false, Ok(Publish::Bind { make: true })), (true, Err(Unsupported))]
    {
        let mut part = block(read_only);
        part.disk.partition = NonZeroU32::new(1);
        assert_eq!(published(&part, &Missing, &[], &[]), expected);
    }
    // The disk is already published at another target, so only the same mode is accepted.
    for (read_only, shown_read_only, expected) in [
        (false, false, Ok(Publish::Bind { make: true })),
        (true, true, Ok(Publish::Bind { make: true })),
        (true, false, Err(StillHeld)),
        (false, true, Err(StillHeld)),
    ] {
        let shown = [VolumeMount { path: Some("there".to_owned()), read_only: shown_read_only }];
        assert_eq!(published(&block(read_only), &Missing, &[], &shown), expected);
    }
}

#[test]
fn unstage_and_unpublish_refuse_another_volumes_mount() {
    let unmount = |block| Ok(Withdraw::Unmount { block });
    for (place, owner, unstage, unpublish) in [
        (Missing, ThisVolume, Ok(Withdraw::Already), Ok(Withdraw::Already)),
        (Directory, ThisVolume, Ok(Withdraw::RemoveDirectory), Ok(Withdraw::RemoveDirectory)),
        (File, ThisVolume, Err(TargetOccupied), Ok(Withdraw::RemoveFile)),
        (Other, ThisVolume, Err(TargetOccupied), Err(TargetOccupied)),
        (MOUNTED, ThisVolume, unmount(false), unmount(false)),
        (MOUNTED, Gone, unmount(false), unmount(false)),
        (MOUNTED, Another, Err(VolumeNotAtPath), Err(VolumeNotAtPath)),
        (MOUNTED, Unproved, unmount(false), unmount(false)),
        (RAW, ThisVolume, Err(VolumeNotAtPath), unmount(true)),
        (RAW, Another, Err(VolumeNotAtPath), Err(VolumeNotAtPath)),
    ] {
        let judged = (judge::unstage(&place, owner), judge::unpublish(&place, owner));
        let (judged_unstage, judged_unpublish) = judged;
        assert_eq!(judged_unstage.map(Authorized::into_act), unstage, "{place:?} {owner:?}");
        assert_eq!(judged_unpublish.map(Authorized::into_act), unpublish, "{place:?} {owner:?}");
    }
}

/// NodeExpandVolume uses the same check.
#[test]
fn stats_path_must_be_mount_of_requested_volume() {
    for (place, owner, expected) in [
        (MOUNTED, ThisVolume, Ok(Shown::Filesystem { read_only: false })),
        (READ_ONLY, ThisVolume, Ok(Shown::Filesystem { read_only: true })),
        (RAW, ThisVolume, Ok(Shown::Block)),
        (MOUNTED, Another, Err(VolumeNotAtPath)),
        (MOUNTED, Gone, Err(VolumeNotAtPath)),
        (MOUNTED, Unproved, Err(DeviceWithoutSerial)),
        (Directory, Unproved, Err(VolumeNotAtPath)),
        (Directory, ThisVolume, Err(VolumeNotAtPath)),
        (Missing, ThisVolume, Err(VolumeNotAtPath)),
    ] {
        let judged = judge::shown(&place, owner).map(Authorized::into_act);
        assert_eq!(judged, expected, "{place:?} {owner:?}");
    }
}

#[test]
fn disk_size_outside_expand_range_is_refused() {
    for (required, limit, expected) in [
        (0, 0, Ok(())),
        (DISK.bytes, DISK.bytes, Ok(())),
        (DISK.bytes + 1, 0, Err(SizeOutOfRange)),
        (0, DISK.bytes - 1, Err(SizeOutOfRange)),
    ] {
        let request = Expand {
            volume: VolumeId::parse("vol-0123456789abcdef0").unwrap(),
            path: kubelet("/k/plugins/s"),
            required_bytes: NonZeroU64::new(required),
            limit_bytes: NonZeroU64::new(limit),
        };
        assert_eq!(judge::expand(&request, DISK.bytes), expected);
    }
}

fn any_content() -> impl Strategy<Value = Content> {
    let level = select(vec![ExtLevel::Ext2, ExtLevel::Ext3, ExtLevel::Ext4]);
    let uuid = prop_oneof![Just(OURS), any::<[u8; 16]>()];
    prop_oneof![
        any::<u64>().prop_map(|at| Unknown { at }),
        select(vec![Signature::Ext2, Signature::Ext4, Signature::Xfs]).prop_map(Damaged),
        Just(Content::PartitionTable(Signature::Mbr)),
        Just(Foreign(Signature::Btrfs)),
        (level, any::<[bool; 2]>(), any::<[u64; 3]>(), uuid.clone()).prop_map(
            |(level, [clean, needs_recovery], [bytes, block_bytes, group_blocks], uuid)| {
                ext(|facts| {
                    (facts.level, facts.uuid) = (level, uuid);
                    (facts.clean, facts.needs_recovery) = (clean, needs_recovery);
                    (facts.continues, facts.mounted) = (clean, needs_recovery);
                    (facts.bytes, facts.block_bytes) = (bytes, block_bytes);
                    (facts.group_blocks, facts.last_check) = (group_blocks, bytes ^ group_blocks);
                })
            }
        ),
        (any::<[bool; 2]>(), any::<[u64; 2]>(), uuid).prop_map(
            |([sound, in_progress], [bytes, block_bytes], uuid)| {
                Content::Xfs(XfsFacts { sound, in_progress, bytes, block_bytes, groups: 4, uuid })
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
        fs in select(FsType::ALL),
        origin in select(Origin::ALL),
        read_only: bool,
        unfinished: bool,
        used_raw: bool,
        bytes: u64,
    ) {
        let request = stage(|s| {
            s.fs = fs;
            s.read_only = read_only;
            s.disk.origin = origin;
        });
        let evidence = Evidence { unfinished, used_raw, ..EVIDENCE };
        let excused = match &content {
            Content::Xfs(x) => {
                x.in_progress && x.uuid == OURS && fs == FsType::Xfs && evidence.unfinished
            }
            Unknown { .. } => evidence.unfinished,
            Damaged(signature) => {
                evidence.unfinished && (*signature == Signature::Xfs) == (fs == FsType::Xfs)
            }
            _ => false,
        };
        let disk = DiskFacts { bytes, whole_bytes: bytes, ..DISK };
        if let Ok(act) = judge::stage_disk(&request, &disk, &content, evidence, Check) {
            if act.act().preparation == Preparation::Format {
                prop_assert!(excused);
                prop_assert!(origin != Origin::Copy && !read_only && !used_raw);
            }
            // A read-only request has a journal replayed, and changes nothing else.
            if read_only {
                let replay = matches!(&content, Content::Ext(ext) if ext.needs_recovery);
                let preparation = act.act().preparation;
                prop_assert!(preparation != Preparation::Format);
                prop_assert!(preparation != Preparation::Check || replay);
                prop_assert!(!act.act().grow);
            }
        }
    }
}

#[test]
fn publications_beyond_limit_are_refused() {
    let most = judge::PUBLICATIONS;
    for (shown, allowed) in [(0, true), (most - 1, true), (most, false), (most + 1, false)] {
        let expected = if allowed { Ok(()) } else { Err(TooManyPublications) };
        assert_eq!(judge::one_more(shown), expected, "{shown}");
    }
}
