use super::*;
use crate::ec2::example_snapshot;
use crate::volume::adopt::tests::request;

const SNAPSHOT: &str = "snap-0123456789abcdef0";

/// Returns a request without a size.
fn unsized_request() -> CreateVolume {
    request(0)
}

fn restore() -> CreateVolume {
    CreateVolume { source: SnapshotId::parse(SNAPSHOT).ok().map(Source::Snapshot), ..request(1) }
}

#[test]
fn class_or_snapshot_decides_encryption() {
    let key = || Some("key".to_owned());
    for (request, class, kms_key, sent) in [
        (request(1), None, None, Some(false)),
        (request(1), Some(false), None, Some(false)),
        (request(1), Some(true), None, Some(true)),
        (request(1), None, key(), Some(true)),
        (request(1), Some(false), key(), Some(true)),
        (restore(), None, None, None),
        (restore(), Some(false), None, Some(false)),
        (restore(), Some(true), None, Some(true)),
        (restore(), None, key(), Some(true)),
    ] {
        let mut request = request;
        request.class.encrypted = class;
        request.class.kms_key = kms_key;
        assert_eq!(encryption(&request), sent, "{request:?}");
    }
}

/// Every other plan is the same for both drivers.
#[test]
fn go_driver_form_only_adds_missing_encrypted() {
    for (encrypted, other) in [(None, Some(Some(false))), (Some(true), None)] {
        let plan = Plan::Create(Box::new(ec2::CreateVolume {
            size: GiB(3),
            encrypted,
            ..Default::default()
        }));
        let form = plan.as_go_driver().map(|form| match form {
            Plan::Create(create) => (create.size, create.encrypted),
            Plan::Copy(_) => panic!("a create becomes a copy"),
        });
        assert_eq!(form, other.map(|encrypted| (GiB(3), encrypted)));
    }
}

#[test]
fn restore_is_refused_beyond_limit_or_unencrypted() {
    for (encrypted, limit, class, condition) in [
        (false, None, None, None),
        (false, Some(4), None, None),
        (false, Some(3), None, Some(Condition::CapacityOutOfRange)),
        (false, Some(5), Some(false), None),
        (true, None, None, None),
        (true, None, Some(true), None),
        (true, None, Some(false), Some(Condition::InvalidField)),
    ] {
        let mut request = restore();
        request.range.limit = limit.map(|gib| GiB(gib).to_bytes());
        request.class.encrypted = class;
        let snapshot = Snapshot { encrypted, ..example_snapshot() };
        assert!(condition.is_none() || restricts_restore(&request));
        let refused = check_restore(&request, &snapshot).err();
        assert_eq!(refused.map(|f| f.condition()), condition, "{request:?}");
    }
}

#[test]
fn restore_without_restriction_needs_no_snapshot() {
    assert!(!restricts_restore(&restore()));
    let mut encrypted = restore();
    encrypted.class.encrypted = Some(true);
    assert!(!restricts_restore(&encrypted));
}

#[test]
fn copy_is_at_least_its_source() {
    let limited = |mut request: CreateVolume, gib| {
        request.range.limit = Some(GiB(gib).to_bytes());
        request
    };
    for (request, source, size) in [
        (unsized_request(), 4, Some(100)),
        (unsized_request(), 101, Some(101)),
        (request(4), 4, Some(4)),
        (request(5), 4, Some(5)),
        (request(3), 4, None),
        (limited(unsized_request(), 200), 200, Some(200)),
        (limited(unsized_request(), 199), 200, None),
        (limited(unsized_request(), 201), 200, Some(200)),
    ] {
        let got = copy_size(&request, GiB(source));
        assert_eq!(got.clone().ok(), size.map(GiB), "{request:?}");
        let condition = got.err().map(|f| f.condition());
        assert!(matches!(condition, None | Some(Condition::CapacityOutOfRange)));
    }
}

#[test]
fn copy_has_key_of_its_source() {
    for (class, source, good) in [
        (None, None, true),
        (None, Some("a"), true),
        (Some("a"), Some("a"), true),
        (Some("a"), Some("b"), false),
        (Some("a"), None, false),
    ] {
        let mut request = request(1);
        request.class.kms_key = class.map(str::to_owned);
        let checked = check_copied_key(&request, source);
        assert_eq!(checked.is_ok(), good, "{class:?} {source:?}");
    }
}

#[test]
fn only_working_availability_zones_hold_volumes() {
    for (kind, available, good) in [
        (ZoneKind::AvailabilityZone, true, true),
        (ZoneKind::AvailabilityZone, false, false),
        (ZoneKind::LocalZone, true, false),
    ] {
        let zone =
            Zone { name: "us-east-1a".to_owned(), id: "use1-az6".to_owned(), kind, available };
        assert_eq!(holds_volumes(&zone), good, "{zone:?}");
    }
}

#[test]
fn explicit_iops_win_over_ratio() {
    for (explicit, ratio, wanted) in [
        (None, None, Some(None)),
        (Some(7), Some(50), Some(Some(7))),
        (None, Some(50), Some(Some(200))),
        (None, Some(u32::MAX), None),
    ] {
        let got = wanted_iops(explicit, ratio, GiB(4)).ok();
        assert_eq!(got, wanted, "{explicit:?} {ratio:?}");
    }
}
