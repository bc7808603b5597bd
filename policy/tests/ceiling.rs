//! The rules under settings.

use std::time::Duration;

use ebs_csi_policy::ceiling::{Ceiling, CeilingError, CeilingSettings};
use ebs_csi_policy::judge::disk_by_name::DisksWithoutSerial;
use ebs_csi_policy::judge::untrusted_images::{NodevNosuid, UntrustedImages};
use ebs_csi_policy::place::PlaceClass;
use ebs_csi_policy::tool::TOOLS;
use ebs_csi_policy::{PRODUCTION, SANDBOX};
use ebs_csi_wire::FsType;

#[test]
fn default_settings_keep_compiled_ceiling() {
    let ceiling = Ceiling::of(PRODUCTION);
    assert!(FsType::ALL.iter().all(|fs| ceiling.offers(*fs)));
    assert!(TOOLS.iter().all(|tool| ceiling.deadline(tool) == tool.deadline));
    assert_eq!(ceiling.places(), PlaceClass::Kubernetes);
    assert_eq!(Ceiling::under(PRODUCTION, CeilingSettings::default()), Ok(ceiling));
    assert_eq!(Ceiling::of(SANDBOX).places(), PlaceClass::Any);
}

#[test]
fn settings_narrow_file_systems_deadlines_and_places() {
    let settings = CeilingSettings {
        file_systems: Some(vec![FsType::Xfs]),
        tool_deadline: Some(Duration::from_secs(60)),
        places: Some(PlaceClass::Kubernetes),
        untrusted_images: Some(UntrustedImages::Deny),
        nodev_nosuid: Some(NodevNosuid::On),
        disks_without_serial: Some(DisksWithoutSerial::Refuse),
    };
    let ceiling = Ceiling::under(SANDBOX, settings).unwrap();
    assert!(ceiling.offers(FsType::Xfs) && !ceiling.offers(FsType::Ext4));
    assert!(TOOLS.iter().all(|tool| ceiling.deadline(tool) == Duration::from_secs(60)));
    assert_eq!(ceiling.places(), PlaceClass::Kubernetes);
    assert_eq!(ceiling.untrusted_images(), UntrustedImages::Deny);
    assert_eq!(ceiling.nodev_nosuid(), NodevNosuid::On);
    assert_eq!(ceiling.disks_without_serial(), DisksWithoutSerial::Refuse);
}

#[test]
fn deadline_longer_than_compiled_has_no_effect() {
    let settings = CeilingSettings {
        tool_deadline: Some(Duration::from_secs(1_000_000)),
        ..CeilingSettings::default()
    };
    let ceiling = Ceiling::under(PRODUCTION, settings).unwrap();
    assert!(TOOLS.iter().all(|tool| ceiling.deadline(tool) == tool.deadline));
}

#[test]
fn no_file_system_or_short_deadline_is_error() {
    let none = CeilingSettings { file_systems: Some(Vec::new()), ..CeilingSettings::default() };
    assert_eq!(Ceiling::under(PRODUCTION, none), Err(CeilingError::NoFileSystem));
    for (deadline, error) in [
        (Duration::ZERO, Some(CeilingError::NoTime)),
        (Duration::from_millis(999), Some(CeilingError::NoTime)),
        (Duration::from_secs(1), None),
    ] {
        let short = CeilingSettings { tool_deadline: Some(deadline), ..CeilingSettings::default() };
        let found = Ceiling::under(PRODUCTION, short);
        assert_eq!(found.err(), error, "{deadline:?}");
    }
}

#[test]
fn error_says_what_setting_must_keep() {
    for (error, remedy) in [
        (CeilingError::NoFileSystem, "ext3, ext4, xfs"),
        (CeilingError::NoTime, "at least one second"),
    ] {
        assert!(error.to_string().contains(remedy), "{error}");
    }
}
