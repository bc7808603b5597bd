use super::*;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use ebs_csi_proto::csi::volume_content_source::SnapshotSource;

fn capability(block: bool, mode: Mode) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(if block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume { fs_type: "ext4".to_owned(), ..Default::default() })
        }),
        access_mode: Some(AccessMode { mode: mode as i32 }),
    }
}

fn create() -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        volume_capabilities: vec![capability(false, Mode::SingleNodeWriter)],
        ..Default::default()
    }
}

fn map(entries: &[(&str, &str)]) -> HashMap<String, String> {
    entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn a_plain_create_has_the_defaults() {
    let request = CreateVolume::parse(&create()).unwrap();
    assert_eq!((request.size, request.volume_type()), (GiB(100), "gp3"));
    assert!(!request.multi_attach && request.source.is_none() && request.placement.is_none());
}

#[test]
fn a_bad_create_is_refused_with_the_field() {
    type Change = fn(&mut csi::CreateVolumeRequest);
    let rows: [(Change, Condition, &str); 7] = [
        (|r| r.name.clear(), Condition::MissingField, "name"),
        (|r| r.volume_capabilities.clear(), Condition::MissingField, "volume_capabilities"),
        (
            |r| r.volume_capabilities = vec![capability(false, Mode::MultiNodeMultiWriter)],
            Condition::Unsupported,
            "MULTI_NODE_MULTI_WRITER",
        ),
        (
            |r| {
                r.capacity_range =
                    Some(csi::CapacityRange { required_bytes: 5 << 30, limit_bytes: 1 << 30 });
            },
            Condition::CapacityOutOfRange,
            "limit_bytes",
        ),
        (|r| r.parameters = map(&[("colour", "red")]), Condition::InvalidField, "colour"),
        (
            |r| r.volume_content_source = Some(csi::VolumeContentSource::default()),
            Condition::MissingField,
            "volume_content_source",
        ),
        (
            |r| {
                let snapshot = SnapshotSource { snapshot_id: "not-a-snapshot".to_owned() };
                let r#type = Some(SourceType::Snapshot(snapshot));
                r.volume_content_source = Some(csi::VolumeContentSource { r#type });
            },
            Condition::NotFound,
            "snapshot_id",
        ),
    ];
    for (change, condition, word) in rows {
        let mut request = create();
        change(&mut request);
        let failure = CreateVolume::parse(&request).unwrap_err();
        assert_eq!(failure.condition(), condition, "{failure}");
        assert!(failure.text().contains(word), "{failure}");
    }
    let mut request = create();
    request.volume_capabilities = vec![capability(true, Mode::MultiNodeMultiWriter)];
    let failure = CreateVolume::parse(&request).unwrap_err();
    assert!(failure.text().contains("io2"), "{failure}");
    request.mutable_parameters = map(&[("type", "io2"), ("iops", "1000")]);
    assert!(CreateVolume::parse(&request).unwrap().multi_attach);
}

/// EC2 gives a copy the encryption of its source.
#[test]
fn copy_accepts_only_true_for_encrypted_parameter() {
    let mut request = create();
    request.volume_content_source =
        Some(Source::Volume(VolumeId::parse("vol-0123456789abcdef0").unwrap()).to_wire());
    for (value, ok) in [("true", true), ("false", false), ("yes", false)] {
        request.parameters = map(&[("encrypted", value)]);
        assert_eq!(CreateVolume::parse(&request).is_ok(), ok, "{value}");
    }
}

/// Unpublish counts as a deletion here. The volume context decides whether a publish waits for
/// initialization.
#[test]
fn malformed_ids_delete_as_gone_otherwise_not_found() {
    let impossible = csi::ControllerUnpublishVolumeRequest {
        volume_id: "vol-impossible".to_owned(),
        node_id: "i-0123456789abcdef0".to_owned(),
        ..Default::default()
    };
    assert_eq!(parse_unpublish(&impossible), Ok(None));
    assert_eq!(parse_delete::<VolumeId>("volume_id", "nope"), Ok(None));
    assert!(parse_delete::<VolumeId>("volume_id", "").is_err());
    assert_eq!(
        parse_id::<VolumeId>("volume_id", "nope").unwrap_err().condition(),
        Condition::NotFound
    );
    let mut publish = csi::ControllerPublishVolumeRequest {
        volume_id: "vol-0123456789abcdef0".to_owned(),
        node_id: "some-fake-node-id".to_owned(),
        volume_capability: Some(capability(false, Mode::SingleNodeWriter)),
        ..Default::default()
    };
    assert_eq!(Publish::parse(&publish).unwrap_err().condition(), Condition::NotFound);
    publish.node_id = "i-0123456789abcdef0".to_owned();
    assert!(!Publish::parse(&publish).unwrap().wait_until_initialized);
    publish.volume_context = map(&[("blockattachuntilinitialized", "true")]);
    assert!(Publish::parse(&publish).unwrap().wait_until_initialized);
}

/// A successful unpublish would claim that an attached volume is detached. A volume id that cannot
/// exist counts as gone even for such a node.
#[test]
fn hyperpod_node_is_refused_for_publish_and_unpublish() {
    const NODE: &str = "hyperpod-abc-i-0123456789abcdef0";
    let mut unpublish_request = csi::ControllerUnpublishVolumeRequest {
        volume_id: "vol-0123456789abcdef0".to_owned(),
        node_id: NODE.to_owned(),
        ..Default::default()
    };
    let publish_request = csi::ControllerPublishVolumeRequest {
        volume_id: unpublish_request.volume_id.clone(),
        node_id: NODE.to_owned(),
        volume_capability: Some(capability(false, Mode::SingleNodeWriter)),
        ..Default::default()
    };
    for refused in [
        parse_unpublish(&unpublish_request).unwrap_err(),
        Publish::parse(&publish_request).unwrap_err(),
    ] {
        assert_eq!(refused.condition(), Condition::Unsupported, "{refused}");
        for part in ["HyperPod", NODE] {
            assert!(refused.text().contains(part), "{refused}");
        }
    }
    unpublish_request.volume_id = "vol-impossible".to_owned();
    assert_eq!(parse_unpublish(&unpublish_request), Ok(None));
}

#[test]
fn expansion_without_required_bytes_has_no_size() {
    let expand = |required_bytes, limit_bytes| {
        Expand::parse(&csi::ControllerExpandVolumeRequest {
            volume_id: "vol-0123456789abcdef0".to_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes, limit_bytes }),
            ..Default::default()
        })
    };
    assert_eq!(expand(0, 0).unwrap().size, None);
    assert_eq!(expand((1 << 30) + 1, 0).unwrap().size, Some(GiB(2)));
    let refused = expand((1 << 30) + 1, (1 << 30) + 2).unwrap_err();
    assert_eq!(refused.condition(), Condition::CapacityOutOfRange);
}

fn mount(fs: &str, flags: &[&str]) -> Capability {
    Capability {
        mode: ebs_csi_proto::AccessMode::SingleNodeWriter,
        kind: ebs_csi_proto::AccessType::Mount {
            fs_type: fs.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        },
    }
}

#[test]
fn unmountable_capability_is_refused_with_its_value() {
    for (capability, word) in [
        (mount("ext4", &["noatime,discard", "data=ordered"]), None),
        (mount("", &["noatime"]), None),
        (mount("XFS", &["nouuid"]), None),
        (mount("ext4", &["tls"]), Some("\"tls\"")),
        (mount("", &["noatime,tls"]), Some("\"tls\"")),
        (mount("ext4", &["nouuid"]), Some("\"nouuid\"")),
        (mount("ext4", &["a b"]), Some("a b")),
        (mount("ntfs", &[]), Some("ntfs")),
        (mount("btrfs", &[]), Some("btrfs")),
    ] {
        let checked = check_mount(std::slice::from_ref(&capability), &FormatKeys::default());
        let text = checked.err().map(|failure| failure.text().to_owned());
        assert_eq!(text.is_some(), word.is_some(), "{capability:?}: {text:?}");
        assert!(text.is_none_or(|text| text.contains(word.unwrap_or_default())));
    }
}
