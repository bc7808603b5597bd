use super::*;
use crate::example::example_snapshot;
use crate::volume::adopt::tests::request;

const SNAPSHOT: &str = "snap-0123456789abcdef0";

fn unsized_request() -> CreateVolume {
    request(0)
}

fn restore() -> CreateVolume {
    CreateVolume { source: SnapshotId::parse(SNAPSHOT).ok().map(Source::Snapshot), ..request(1) }
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
        let refused = check_restore(&request, &snapshot).err();
        assert_eq!(refused.map(|f| f.condition()), condition, "{request:?}");
    }
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
