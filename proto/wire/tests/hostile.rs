//! Valid protobuf messages that no correct peer sends.

use ebs_csi_wire::mount::MountWordError;
use ebs_csi_wire::{Hello, Job, KeyStep, Malformed, Reply, Request, pb};
use prost::Message;

const VOLUME: &str = "vol-0123456789abcdef0";
const PATH: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount";

fn disk() -> pb::Disk {
    pb::Disk { volume_id: VOLUME.to_owned(), ..pb::Disk::default() }
}

fn stage() -> pb::Stage {
    pb::Stage {
        disk: Some(disk()),
        staging_path: PATH.to_owned(),
        fs_type: pb::FsType::Ext4 as i32,
        ..pb::Stage::default()
    }
}

fn decoded(operation: pb::request::Operation) -> Result<Request, Malformed> {
    let wire = pb::Request { id: 1, wait_ms: 0, operation: Some(operation) };
    Request::decode(&wire.encode_to_vec())
}

fn staged(change: impl Fn(&mut pb::Stage)) -> Result<Request, Malformed> {
    let mut stage = stage();
    change(&mut stage);
    decoded(pb::request::Operation::Stage(stage))
}

fn with_disk(change: impl Fn(&mut pb::Disk)) -> Result<Request, Malformed> {
    staged(|stage| change(stage.disk.as_mut().unwrap()))
}

fn replied(result: pb::reply::Result) -> Result<Reply, Malformed> {
    let wire = pb::Reply { id: 1, result: Some(result) };
    Reply::decode(&wire.encode_to_vec())
}

#[test]
fn a_request_without_an_operation_is_refused() {
    for bytes in [&[][..], &[8, 7]] {
        assert_eq!(Request::decode(bytes), Err(Malformed::Missing { field: "operation" }));
    }
    assert_eq!(Reply::decode(&[]), Err(Malformed::Missing { field: "result" }));
}

#[test]
fn bytes_that_are_not_protobuf_are_refused() {
    for bytes in [&[0xff][..], &[0x5a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x5a, 0x04, 0]] {
        assert_eq!(Request::decode(bytes), Err(Malformed::NotProtobuf));
    }
}

#[test]
fn unknown_enum_numbers_are_refused() {
    for number in [0, 4, -1, i32::MAX] {
        assert_eq!(
            staged(|stage| stage.fs_type = number),
            Err(Malformed::UnknownValue { field: "fs_type", number })
        );
    }
    assert!(with_disk(|disk| disk.origin = 3).is_err());
    assert!(with_disk(|disk| disk.source = 3).is_err());
    for number in [0, 36, -1] {
        let refused = pb::Refused { reason: number, seen: None };
        assert!(replied(pb::reply::Result::Refused(refused)).is_err());
    }
}

#[test]
fn look_and_promise_refuse_other_times_and_holders() {
    use pb::request::Operation;
    let held = |attached_at: &str| {
        let (volume_id, attached_at) = (VOLUME.to_owned(), attached_at.to_owned());
        decoded(Operation::Held(pb::Held { volume_id, attached_at, question: u64::MAX }))
    };
    let promise = |attached_at: &str| {
        let (volume_id, attached_at) = (VOLUME.to_owned(), attached_at.to_owned());
        decoded(Operation::Promise(pb::Promise { volume_id, attached_at }))
    };
    assert!(held("").is_ok() && promise("").is_err());
    for bad in ["now", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00Z 7 .", "2026-01-01T00:00:00Z\n"]
    {
        assert!(held(bad).is_err() && promise(bad).is_err(), "{bad:?}");
        assert!(with_disk(|disk| disk.attached_at = bad.to_owned()).is_err(), "{bad:?}");
    }
    for number in [0, 8, -1] {
        let holding = pb::Holding { holder: number, question: 1, promised: true };
        assert!(replied(pb::reply::Result::Holding(holding)).is_err());
    }
}

/// Content values are from closed lists, and a mount path must pass the path check.
#[test]
fn refusal_with_invalid_seen_detail_is_rejected() {
    use pb::refused::Seen;
    let refused = |seen| {
        replied(pb::reply::Result::Refused(pb::Refused {
            reason: pb::Refusal::ForeignContent as i32,
            seen,
        }))
    };
    let content = |signature, state| Some(Seen::Content(pb::Content { signature, state }));
    let path = |path: &str| Some(Seen::MountedAt(path.to_owned()));
    for good in [None, content(1, 1), Some(Seen::UnknownAt(0)), path("/k/p")] {
        assert!(refused(good.clone()).is_ok(), "{good:?}");
    }
    for (signature, state) in [(0, 1), (1, 0), (1000, 1), (1, 5), (-1, 1)] {
        assert!(refused(content(signature, state)).is_err(), "{signature} {state}");
    }
    for bad in ["", "k/p", "/k/../p", "/k\n/p"] {
        assert!(refused(path(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn refusal_without_seen_detail_matches_previous_release() {
    // Reply 1, refused, reason 11: the bytes that the previous release wrote.
    let old = [8, 1, 0xa2, 1, 2, 8, 11];
    let expected = Reply { id: 1, outcome: ebs_csi_wire::Refusal::ForeignContent.into() };
    assert_eq!(Reply::decode(&old), Ok(expected.clone()));
    assert_eq!(expected.encode(), old);
}

#[test]
fn job_with_invalid_value_is_refused() {
    let job = |change: fn(&mut pb::Job)| {
        let mut job =
            pb::Job { fs_type: pb::FsType::Ext4 as i32, uuid: vec![7; 16], ..pb::Job::default() };
        change(&mut job);
        Job::decode(&job.encode_to_vec())
    };
    assert!(job(|_| {}).is_ok());
    let changes: [fn(&mut pb::Job); 3] =
        [|job| job.tool = 256, |job| job.fs_type = 0, |job| job.uuid = vec![7; 15]];
    for change in changes {
        assert!(job(change).is_err());
    }
    assert_eq!(Job::decode(&[0xff]), Err(Malformed::NotProtobuf));
}

#[test]
fn malformed_paths_and_ids_are_refused() {
    // The tests of a Stage change one field of a message that is otherwise valid.
    assert!(staged(|_| {}).is_ok());
    for path in ["", "/", "relative", "/a/../b", "/a//b", "/a/", "/a\0"] {
        let refused = staged(|stage| stage.staging_path = path.to_owned());
        assert!(matches!(refused, Err(Malformed::Path(_))), "{path:?}");
    }
    for id in ["", "vol-", "vol-xyz", "../etc", "snap-0123456789abcdef0"] {
        let refused = with_disk(|disk| disk.volume_id = id.to_owned());
        assert!(matches!(refused, Err(Malformed::Id(_))), "{id:?}");
    }
    assert!(with_disk(|disk| disk.device_hint = "/dev/../x".to_owned()).is_err());
}

#[test]
fn stage_without_disk_names_missing_field() {
    assert_eq!(staged(|stage| stage.disk = None), Err(Malformed::Missing { field: "disk" }));
}

#[test]
fn stage_request_beyond_limits_is_refused() {
    let flag = pb::MountFlag { name: "ro".to_owned(), value: String::new() };
    assert!(staged(|stage| stage.flags = vec![flag.clone(); 32]).is_ok());
    assert_eq!(
        staged(|stage| stage.flags = vec![flag.clone(); 33]),
        Err(Malformed::MountWord(MountWordError::TooManyFlags(33)))
    );
    let long = pb::MountFlag { name: "context".to_owned(), value: "x".repeat(249) };
    assert!(staged(|stage| stage.flags = vec![long.clone(); 16]).is_ok());
    assert_eq!(
        staged(|stage| stage.flags = vec![long.clone(); 17]),
        Err(Malformed::MountWord(MountWordError::TooMuchText(4352)))
    );
    assert!(with_disk(|disk| disk.partition = 256).is_err());
}

/// A comma, quote, space or newline in a flag could carry a second mount option.
#[test]
fn malformed_mount_flags_are_refused() {
    for (name, value) in
        [("ro,exec", ""), ("context", "a\"b"), ("", ""), ("a b", ""), ("commit", "5\n"), ("RO", "")]
    {
        let refused = staged(|stage| {
            stage.flags = vec![pb::MountFlag { name: name.to_owned(), value: value.to_owned() }];
        });
        assert!(matches!(refused, Err(Malformed::MountWord(_))), "{name:?} {value:?}");
    }
}

#[test]
fn hello_with_invalid_version_range_is_refused() {
    let hello = |oldest, newest| {
        decoded(pb::request::Operation::Hello(pb::Hello { oldest, newest, ..pb::Hello::default() }))
    };
    for (oldest, newest) in [(0, 0), (0, 1), (2, 1)] {
        assert!(hello(oldest, newest).is_err());
    }
    assert!(hello(1, 9).is_ok());
}

/// An option that is lost would make another file system than was asked for.
#[test]
fn peers_with_other_format_options_find_no_version() {
    let of = |version| Hello { oldest: version, newest: version, key: KeyStep::None };
    let with_key = Hello::with_key(KeyStep::None);
    for (ours, earlier) in [(Hello::OURS, of(1)), (with_key, of(2)), (with_key, Hello::OURS)] {
        assert_eq!(ours.common(earlier), None);
        assert_eq!(ours.common(ours), Some(ours.newest));
    }
}

#[test]
fn nonce_or_proof_of_wrong_length_is_refused() {
    let hello = |nonce: usize, proof: usize| {
        decoded(pb::request::Operation::Hello(pb::Hello {
            oldest: 2,
            newest: 2,
            nonce: vec![1; nonce],
            proof: vec![2; proof],
        }))
    };
    let challenge = |nonce: usize, proof: usize| {
        replied(pb::reply::Result::Challenge(pb::Challenge {
            nonce: vec![1; nonce],
            proof: vec![2; proof],
        }))
    };
    for (nonce, proof) in [(1, 0), (31, 0), (33, 0), (0, 31), (0, 33), (32, 32)] {
        assert!(hello(nonce, proof).is_err(), "{nonce} {proof}");
    }
    for (nonce, proof) in [(0, 0), (32, 0), (0, 32), (31, 32), (32, 33)] {
        assert!(challenge(nonce, proof).is_err(), "{nonce} {proof}");
    }
    assert!(hello(32, 0).is_ok() && hello(0, 32).is_ok() && challenge(32, 32).is_ok());
}

#[test]
fn reply_fields_outside_limits_are_refused() {
    let failed = |(errno, tool_exit, tool_signal), mode| {
        let node = Some(pb::Node { uid: 0, gid: 0, mode });
        let step = pb::Step::Format as i32;
        let failed = pb::Failed { step, errno, tool_exit, tool_signal, node };
        replied(pb::reply::Result::Failed(failed))
    };
    for good in [(0, 0, 0), (5, 0, 0), (0, 8, 0), (0, -1, 9), (4095, 255, 0)] {
        assert!(failed(good, 0o7777).is_ok(), "{good:?}");
        assert!(failed(good, 0o10000).is_err(), "{good:?}");
    }
    for bad in
        [(-1, 0, 0), (4096, 0, 0), (0, -1, 0), (0, 256, 0), (0, 3, 9), (0, 0, 9), (0, -1, 65)]
    {
        assert!(failed(bad, 0o7777).is_err(), "{bad:?}");
    }
    let page = |length| replied(pb::reply::Result::LogPage(pb::LogPage { page: vec![0; length] }));
    assert!(page(4096).is_ok());
    assert!(page(4097).is_err());
    let welcome_with = |release: &str, digest: &str, wider: &[String]| {
        replied(pb::reply::Result::Welcome(pb::Welcome {
            version: 1,
            release: release.to_owned(),
            policy_digest: digest.to_owned(),
            sandbox: false,
            landlock: Some(6),
            wider: wider.to_vec(),
        }))
    };
    let welcome = |release: &str, digest: &str| welcome_with(release, digest, &[]);
    let digest = "0123456789abcdef".repeat(4);
    assert!(welcome("0.1.0", &digest).is_ok());
    assert!(welcome("", &digest).is_err());
    assert!(welcome("0.1\n0", &digest).is_err());
    assert!(welcome("0.1.0", &digest.to_uppercase()).is_err());
    assert!(welcome("0.1.0", "").is_err());
    for (number, setting, is_valid) in [
        (32, "--paths=any".to_owned(), true),
        (33, "--paths=any".to_owned(), false),
        (1, "x".repeat(256), true),
        (1, "x".repeat(257), false),
        (1, String::new(), false),
        (1, "--paths any".to_owned(), false),
    ] {
        let found = welcome_with("0.1.0", &digest, &vec![setting; number]).is_ok();
        assert_eq!(found, is_valid, "{number}");
    }
}
