//! Tables of requests: the error of each invalid request, and the result of each valid one.

use std::collections::HashMap;

use ebs_csi_policy::format_option::storage_class_rows;
use ebs_csi_wire::{Operation, Origin, Source};
use proptest::prelude::*;

use super::*;

#[path = "../../tests/scripted/requests.rs"]
mod requests;

use requests::{
    STAGING, TARGET, VOLUME, block, mount, publish as good_publish, stage as good_stage, with_mode,
};

fn map(entries: &[(&str, &str)]) -> HashMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn staged(request: &csi::NodeStageVolumeRequest) -> wire::Stage {
    stage(request, false).unwrap().expect("something to stage")
}

#[test]
fn invalid_stage_request_error_names_field() {
    type Spoil = fn(&mut csi::NodeStageVolumeRequest);
    use Condition::{InvalidField, MissingField, NotFound, Unsupported};
    let rows: &[(&str, Spoil, Condition)] = &[
        ("volume_id", |r| r.volume_id.clear(), MissingField),
        ("staging_target_path", |r| r.staging_target_path.clear(), MissingField),
        ("volume_capability", |r| r.volume_capability = None, MissingField),
        (
            "access_mode",
            |r| {
                r.volume_capability = Some(with_mode(mount("", &[]), Mode::MultiNodeMultiWriter));
            },
            Unsupported,
        ),
        ("partition", |r| r.volume_context = map(&[("partition", "-1")]), InvalidField),
        ("partition", |r| r.volume_context = map(&[("partition", "1p")]), InvalidField),
        ("partition", |r| r.volume_context = map(&[("partition", "256")]), InvalidField),
        ("partition", |r| r.volume_context = map(&[("partition", "")]), InvalidField),
        ("staging_target_path", |r| r.staging_target_path = "/a/../b".to_owned(), InvalidField),
        ("staging_target_path", |r| r.staging_target_path = "relative".to_owned(), InvalidField),
        ("fs_type", |r| r.volume_capability = Some(mount("ntfs", &[])), InvalidField),
        ("fs_type", |r| r.volume_capability = Some(mount("btrfs", &[])), InvalidField),
        ("fs_type", |r| r.volume_capability = Some(mount("ext4 ", &[])), InvalidField),
        ("blocksize", |r| r.volume_context = map(&[("blocksize", "4096; rm")]), InvalidField),
        ("blockSize", |r| r.volume_context = map(&[("blocksize", "4097")]), InvalidField),
        ("inodesize", |r| r.volume_context = map(&[("inodesize", "-256")]), InvalidField),
        (
            "bytesPerInode",
            |r| {
                r.volume_capability = Some(mount("xfs", &[]));
                r.volume_context = map(&[("bytesperinode", "8192")]);
            },
            InvalidField,
        ),
        (
            "ext4BigAlloc",
            |r| {
                r.volume_capability = Some(mount("ext3", &[]));
                r.volume_context = map(&[("ext4bigalloc", "true")]);
            },
            InvalidField,
        ),
        (
            "ext4ClusterSize",
            |r| r.volume_context = map(&[("ext4clustersize", "64k")]),
            InvalidField,
        ),
        ("ext4bigalloc", |r| r.volume_context = map(&[("ext4bigalloc", "yes")]), InvalidField),
        ("mount_flags", |r| r.volume_capability = Some(mount("", &["no atime"])), InvalidField),
        ("mount_flags", |r| r.volume_capability = Some(mount("", &["commit="])), InvalidField),
        ("devicePath", |r| r.publish_context.clear(), MissingField),
        (
            "devicePath",
            |r| r.publish_context = map(&[("devicePath", "/dev/../etc/shadow")]),
            InvalidField,
        ),
        (
            "size-bytes",
            |r| {
                r.publish_context.insert("ebs.csi.aws.com/size-bytes".to_owned(), "1Gi".to_owned());
            },
            InvalidField,
        ),
        ("volume_id", |r| r.volume_id = "fake-vol-id-1".to_owned(), NotFound),
        ("volumeID", |r| r.volume_id = "local-ebs://dev/xvdbz".to_owned(), InvalidField),
    ];
    for (field, spoil, condition) in rows {
        let mut request = good_stage();
        spoil(&mut request);
        let failure = stage(&request, false).unwrap_err();
        assert_eq!(failure.condition(), *condition, "{field}: {failure}");
        assert!(failure.text().contains(field), "{field}: {failure}");
    }
}

#[test]
fn invalid_publish_request_error_names_field() {
    type Spoil = fn(&mut csi::NodePublishVolumeRequest);
    use Condition::{InvalidField, MissingField, NotFound};
    let rows: &[(&str, Spoil, Condition)] = &[
        ("volume_id", |r| r.volume_id.clear(), MissingField),
        ("staging_target_path", |r| r.staging_target_path.clear(), MissingField),
        ("target_path", |r| r.target_path.clear(), MissingField),
        ("volume_capability", |r| r.volume_capability = None, MissingField),
        (
            "access_type",
            |r| {
                r.volume_capability =
                    Some(csi::VolumeCapability { access_type: None, ..mount("", &[]) });
            },
            MissingField,
        ),
        ("target_path", |r| r.target_path = "/k/./p".to_owned(), InvalidField),
        ("target_path", |r| r.target_path = "/k//p".to_owned(), InvalidField),
        ("target_path", |r| r.target_path = "/k/p\n".to_owned(), InvalidField),
        ("fs_type", |r| r.volume_capability = Some(mount("ntfs", &[])), InvalidField),
        (
            "devicePath",
            |r| {
                r.volume_capability = Some(block());
                r.publish_context.clear();
            },
            MissingField,
        ),
        ("volume_id", |r| r.volume_id = "vol-XYZ".to_owned(), NotFound),
    ];
    for (field, spoil, condition) in rows {
        let mut request = good_publish();
        spoil(&mut request);
        let failure = publish(&request).unwrap_err();
        assert_eq!(failure.condition(), *condition, "{field}: {failure}");
        assert!(failure.text().contains(field), "{field}: {failure}");
    }
}

#[test]
fn missing_capability_is_reported_before_unknown_volume() {
    let mut request = good_stage();
    request.volume_id = "fake".to_owned();
    request.volume_capability = None;
    let failure = stage(&request, false).unwrap_err();
    assert_eq!(failure.condition(), Condition::MissingField);
}

#[test]
fn default_stage_requests_ext4_on_whole_disk() {
    let request = staged(&good_stage());
    assert_eq!(request.fs, FsType::Ext4);
    assert_eq!(request.disk.volume.as_str(), VOLUME);
    assert_eq!(request.disk.device_hint.unwrap().as_str(), "/dev/xvdaa");
    assert_eq!(request.disk.partition, None);
    assert_eq!(request.disk.size_at_attach, None);
    assert_eq!(request.disk.origin, Origin::Unknown);
    assert_eq!(request.staging.as_str(), STAGING);
    assert!(!request.read_only && request.flags.is_empty());
}

#[test]
fn all_stage_parameters_reach_helper_request() {
    let mut request = good_stage();
    request.volume_capability = Some(with_mode(
        mount("EXT4", &["noatime", "commit=5,noatime", "context=\"a:b:c:d1,d2\""]),
        Mode::SingleNodeReaderOnly,
    ));
    request.volume_context =
        map(&[("partition", "3"), ("storage.kubernetes.io/csiProvisionerIdentity", "x")]);
    let on_ext4 = |row: &&OptionRow| row.on(FsType::Ext4).is_some();
    for row in storage_class_rows().filter(on_ext4) {
        let value = match row.kind {
            OptionKind::Number => row.example.to_string(),
            OptionKind::Switch => "true".to_owned(),
        };
        request.volume_context.insert(row.context_key.to_owned(), value);
    }
    request.volume_context.insert("blocksize".to_owned(), "4k".to_owned());
    request.publish_context = map(&[
        ("devicePath", "/dev/xvdaa"),
        ("ebs.csi.aws.com/size-bytes", "1073741824"),
        ("ebs.csi.aws.com/origin", "snapshot"),
        ("ebs.csi.aws.com/attached-at", "2026-01-01T00:00:00Z"),
    ]);
    let request = stage(&request, true).unwrap().expect("something to stage");
    assert!(request.read_only);
    assert_eq!(request.disk.partition.unwrap().get(), 3);
    assert_eq!(request.disk.size_at_attach.unwrap().get(), 1 << 30);
    assert_eq!(request.disk.attached_at.unwrap().as_str(), "2026-01-01T00:00:00Z");
    assert_eq!(request.disk.origin, Origin::Copy);
    let flags: Vec<String> = request.flags.iter().map(ToString::to_string).collect();
    assert_eq!(flags, ["noatime", "commit=5", "context=\"a:b:c:d1,d2\""]);
    let sent = |row: &&OptionRow| on_ext4(row) || row.given_by == GivenBy::LegacyXfsFlag;
    let expected = ROWS.iter().filter(sent).map(|row| match row.key {
        "blockSize" => row.with(4096),
        _ => row.with(row.example),
    });
    assert_eq!(request.format, expected.collect::<Vec<_>>());
}

/// Migrated in-tree volumes carry partition 0.
#[test]
fn partition_0_means_whole_disk() {
    let mut request = good_stage();
    request.volume_context = map(&[("partition", "0")]);
    assert_eq!(staged(&request).disk.partition, None);
}

/// Known values map to their origin and source; an empty value leaves the origin unknown.
#[test]
fn unknown_origin_value_counts_as_copy() {
    use Source::{Elsewhere, Own, Untold};
    for (word, want, source) in [
        ("blank", Origin::Blank, Elsewhere),
        ("snapshot", Origin::Copy, Elsewhere),
        ("volume", Origin::Copy, Elsewhere),
        ("own-snapshot", Origin::Copy, Own),
        ("own-volume", Origin::Copy, Own),
        ("unseen-snapshot", Origin::Copy, Untold),
        ("unseen-volume", Origin::Copy, Untold),
        ("archive", Origin::Copy, Elsewhere),
        ("", Origin::Unknown, Elsewhere),
    ] {
        let mut request = good_stage();
        request.publish_context.insert("ebs.csi.aws.com/origin".to_owned(), word.to_owned());
        let disk = staged(&request).disk;
        assert_eq!((disk.origin, disk.source), (want, source), "{word}");
    }
}

#[test]
fn nvme_device_path_gives_no_hint() {
    let mut request = good_stage();
    request.publish_context = map(&[("devicePath", "/dev/nvme1n1")]);
    assert_eq!(staged(&request).disk.device_hint, None);
}

#[test]
fn raw_block_volume_skips_stage_and_publishes_device() {
    let mut request = good_stage();
    request.volume_capability = Some(with_mode(block(), Mode::MultiNodeMultiWriter));
    request.publish_context.clear();
    assert_eq!(stage(&request, false), Ok(None));

    let mut request = good_publish();
    request.volume_capability = Some(block());
    request.readonly = true;
    let publishing = publish(&request).unwrap();
    match publishing.operation {
        Operation::PublishBlock(request) => assert!(request.read_only),
        other => panic!("{other:?}"),
    }
}

#[test]
fn access_mode_sets_read_only_and_single_writer() {
    for (mode, readonly, read_only, single) in [
        (Mode::SingleNodeWriter, false, false, false),
        (Mode::SingleNodeWriter, true, true, false),
        (Mode::SingleNodeReaderOnly, false, true, false),
        (Mode::SingleNodeSingleWriter, false, false, true),
        (Mode::SingleNodeMultiWriter, false, false, false),
    ] {
        let mut request = good_publish();
        request.volume_capability = Some(with_mode(mount("xfs", &[]), mode));
        request.readonly = readonly;
        let publishing = publish(&request).unwrap();
        assert_eq!(publishing.single, single, "{mode:?}");
        match publishing.operation {
            Operation::PublishFilesystem(request) => {
                assert_eq!(request.read_only, read_only, "{mode:?}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn node_local_volume_takes_id_from_publish_context() {
    let mut request = good_stage();
    request.volume_id = "local-ebs://dev/xvdbz".to_owned();
    request.volume_capability = Some(with_mode(mount("", &[]), Mode::MultiNodeMultiWriter));
    request.publish_context.insert("volumeID".to_owned(), VOLUME.to_owned());
    assert_eq!(staged(&request).disk.volume.as_str(), VOLUME);
}

/// An empty field is reported as missing, and a path with .. as invalid.
#[test]
fn stats_for_relative_path_is_not_found() {
    let condition = |volume_id, volume_path| {
        look_up(volume_id, volume_path).map_err(|failure| failure.condition())
    };
    assert_eq!(condition("", TARGET), Err(Condition::MissingField));
    assert_eq!(condition("fake", ""), Err(Condition::MissingField));
    assert_eq!(condition("fake", "some/path"), Err(Condition::NotFound));
    assert_eq!(condition(VOLUME, "some/path"), Err(Condition::NotFound));
    assert_eq!(condition(VOLUME, "/some/../path"), Err(Condition::InvalidField));
    assert!(condition(VOLUME, TARGET).is_ok());
}

#[test]
fn expand_keeps_valid_capacity_range_and_refuses_invalid() {
    let growing = |required_bytes, limit_bytes, capability| {
        expand(&csi::NodeExpandVolumeRequest {
            volume_id: VOLUME.to_owned(),
            volume_path: TARGET.to_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes, limit_bytes }),
            volume_capability: capability,
            ..Default::default()
        })
    };
    let grown = growing(5, 7, None).unwrap();
    assert_eq!(grown.required_bytes.unwrap().get(), 5);
    assert_eq!(grown.limit_bytes.unwrap().get(), 7);
    assert_eq!(growing(0, 0, Some(block())).unwrap().required_bytes, None);
    let condition = |r: Result<Growing, Failure>| r.unwrap_err().condition();
    assert_eq!(condition(growing(-1, 0, None)), Condition::InvalidField);
    assert_eq!(condition(growing(8, 7, None)), Condition::CapacityOutOfRange);
    let several = with_mode(mount("", &[]), Mode::MultiNodeMultiWriter);
    assert_eq!(condition(growing(5, 7, Some(several))), Condition::Unsupported);
}

#[test]
fn disallowed_mount_flag_error_names_reason_and_remedy() {
    for (flag, fs) in [
        ("loop", FsType::Ext4),
        ("nouuid", FsType::Ext4),
        ("commit=5", FsType::Xfs),
        ("nonsense", FsType::Xfs),
    ] {
        let strings = ["noatime".to_owned(), flag.to_owned()];
        let failure = mount_flags(&strings, &[fs], false).unwrap_err();
        assert_eq!(failure.condition(), Condition::InvalidField, "{flag}");
        for word in ["mount_flags", flag, fs.as_str(), "remove it"] {
            assert!(failure.text().contains(word), "{flag}: {failure}");
        }
    }
    assert!(mount_flags(&["nouuid".to_owned()], FsType::ALL, false).is_ok());
}

#[test]
fn too_many_mount_flags_are_refused() {
    let flags: Vec<String> = (1..41).map(|n| format!("commit={n}")).collect();
    assert!(mount_flags(&flags[..32], FsType::ALL, false).is_ok());
    assert!(mount_flags(&flags[..33], FsType::ALL, false).is_err());
    let repeated = vec!["noatime".to_owned(); 100];
    assert_eq!(mount_flags(&repeated, FsType::ALL, false).unwrap().len(), 1);
}

proptest! {
    #[test]
    fn accepted_stage_request_round_trips_through_wire(
        id in "(vol-[0-9a-f]{17})|(vol-[0-9a-f]{8})|.{0,20}",
        path in "(/[a-z.]{1,5}){1,4}|.{0,20}",
        fs in "(ext4|XFS|ext3||ntfs)",
        flag in "[a-z=,\"0-9]{0,12}",
        key in "(blocksize|inodesize|numberofinodes|ext4bigalloc|partition)",
        value in "[0-9a-zA-Z]{0,8}",
        device in "(/dev/xvd[a-z]{1,2})|.{0,12}",
    ) {
        let mut request = good_stage();
        request.volume_id = id;
        request.staging_target_path = path;
        request.volume_capability = Some(mount(&fs, &[&flag]));
        request.volume_context = map(&[(&key, &value)]);
        request.publish_context = map(&[("devicePath", &device)]);
        match stage(&request, false) {
            Err(failure) => prop_assert!(!failure.text().is_empty()),
            Ok(None) => prop_assert!(false, "a mount has something to stage"),
            Ok(Some(stage)) => {
                let question = wire::Request {
                    id: 1,
                    wait: std::time::Duration::from_secs(1),
                    operation: Operation::Stage(stage),
                };
                prop_assert_eq!(wire::Request::decode(&question.encode()).unwrap(), question);
            }
        }
    }
}
