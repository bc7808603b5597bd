//! Tests of the table of answers.

use std::num::NonZeroU8;
use std::time::Duration;

use super::*;
use ebs_csi_wire::{
    ContentState, Features, FsType, KernelVersion, KubeletPath, MountFlag, Observation, Signature,
};
use tonic::Code;

const VOLUME: &str = "vol-0123456789abcdef0";

fn chosen_deadline() -> Deadline {
    let mut request = tonic::Request::new(());
    request.set_timeout(Duration::from_secs(60));
    Deadline::of(request.metadata())
}

fn failure_of(call: NodeCall, error: &HelperError) -> Failure {
    failure(call, &VOLUME, &"/k/p", error, chosen_deadline())
}

#[test]
fn refused_path_error_names_request_field() {
    for (call, field) in [
        (NodeCall::Stage, "staging_target_path"),
        (NodeCall::Unpublish, "target_path"),
        (NodeCall::Stats, "volume_path"),
    ] {
        for refusal in [Refusal::PathOutside, Refusal::PathNotPlain] {
            let failure = failure_of(call, &HelperError::Refused(refusal.into()));
            assert!(failure.text().contains(&format!(": {field} /k/p: ")), "{failure}");
        }
    }
}

/// A pod starts with the old size after FAILED_PRECONDITION alone, and waits after other codes.
#[test]
fn growth_that_cannot_be_is_failed_precondition() {
    for (errno, code) in [
        (EPERM, Code::FailedPrecondition),
        (EACCES, Code::FailedPrecondition),
        (EROFS, Code::FailedPrecondition),
        (EINVAL, Code::FailedPrecondition),
        (EOPNOTSUPP, Code::FailedPrecondition),
        // EIO, ENOMEM, EBUSY and ENOSPC may pass.
        (5, Code::Internal),
        (12, Code::Internal),
        (16, Code::Internal),
        (28, Code::Internal),
    ] {
        let failure =
            failure_of(NodeCall::Expand, &HelperError::Failed(Failed::call(Step::Grow, errno)));
        assert_eq!(failure.condition().code(), code, "{errno}");
        let says = failure.text().contains("keeps its size");
        assert_eq!(says, code == Code::FailedPrecondition, "{failure}");
    }
    // The staged volume is mounted, so that a stage that grew nothing is not "certainly not done".
    let staged = failure_of(NodeCall::Stage, &HelperError::Failed(Failed::call(Step::Grow, EPERM)));
    assert_eq!(staged.condition().code(), Code::Aborted);
}

#[test]
fn failed_mount_points_to_kernels_log() {
    let failed = HelperError::Failed(Failed::call(Step::CreateMount, 22));
    let failure = failure_of(NodeCall::Stage, &failed);
    assert!(failure.text().ends_with("`dmesg` on the node has the kernel's reason"), "{failure}");
}

/// e2fsck(8) ends with 8 or more when it could not do its work.
#[test]
fn failed_checker_says_nothing_about_file_system() {
    let end = ToolEnd::Exited(NonZeroU8::new(12).unwrap());
    let failed = HelperError::Failed(Failed::tool(Step::Check, end));
    let failure = failure_of(NodeCall::Stage, &failed);
    let said = failure.text();
    assert!(said.contains("status 12; this says nothing about the state"), "{failure}");
    assert!(!said.contains("tried again"), "{failure}");
}

/// No refusal is an internal error.
#[test]
fn every_refusal_names_volume_path_and_next_step() {
    for call in NodeCall::ALL {
        for refusal in Refusal::ALL {
            let failure = failure_of(call, &HelperError::Refused((*refusal).into()));
            for words in [VOLUME, "/k/p", refusal.explain()] {
                assert!(failure.text().contains(words), "{failure}");
            }
            assert_ne!(failure.condition().code(), Code::Internal, "{refusal:?}");
        }
    }
}

#[test]
fn refusal_reports_finding_before_advice() {
    let content = |signature, state| Observation::Content { signature, state };
    let lacking = |incompatible, kernel| Observation::Lacking {
        features: Features {
            fs: FsType::Ext4,
            compatible: 0,
            incompatible,
            read_only_compatible: 0,
            block_bytes: 0,
        },
        kernel,
    };
    let path = KubeletPath::parse("/k/other/globalmount").unwrap();
    for (reason, seen, words) in [
        (
            Refusal::ForeignContent,
            content(Signature::Xfs, ContentState::Sound),
            "found an XFS file system on the disk: ",
        ),
        (
            Refusal::FilesystemErrors,
            content(Signature::Ext4, ContentState::Damaged),
            "found an ext4 file system on the disk, damaged: ",
        ),
        (
            Refusal::UnknownContent,
            Observation::UnknownBytes { at: 3000 },
            "found unknown bytes at offset 3000 of the disk: ",
        ),
        (
            Refusal::StagedElsewhere,
            Observation::MountedAt(path),
            "found a mount at /k/other/globalmount: ",
        ),
        (Refusal::SizeOutOfRange, Observation::DiskBytes(4096), "found a disk of 4096 bytes: "),
        (
            Refusal::KernelLacksFeature,
            lacking(1 << 21, Some(KernelVersion { major: 6, minor: 1 })),
            "Linux 6.1 lacks what an ext4 file system needs: FEATURE_I21: ",
        ),
        (
            Refusal::NewerThanChecker,
            lacking(1 << 21, None),
            "the checker lacks what an ext4 file system needs: FEATURE_I21: ",
        ),
        (
            Refusal::MountFlag,
            Observation::MountFlag(MountFlag::new("commit", Some("5")).unwrap()),
            "found the mount flag \"commit=5\": ",
        ),
    ] {
        let failure =
            failure_of(NodeCall::Stage, &HelperError::Refused(Refused::because(reason, seen)));
        let whole = format!("{words}{}", reason.explain());
        assert!(failure.text().ends_with(&whole), "{failure}");
    }
}

#[test]
fn foreign_content_advice_fits_what_is_there() {
    for (signature, words) in [
        (Signature::Luks, "encrypted: \"true\""),
        (Signature::Lvm2, "does not assemble"),
        (Signature::Swap, "wipefs"),
        (Signature::Vfat, "copy the files"),
        (Signature::Btrfs, "copy the files"),
        (Signature::Ext4, "name the file system that is there"),
    ] {
        let seen = Observation::Content { signature, state: ContentState::Sound };
        let refused = HelperError::Refused(Refused::because(Refusal::ForeignContent, seen));
        let failure = failure_of(NodeCall::Stage, &refused);
        assert!(failure.text().contains(words), "{failure}");
    }
}

#[test]
fn only_busy_and_version_refusals_leave_outcome_open() {
    for call in NodeCall::ALL {
        for refusal in Refusal::ALL {
            let passing = matches!(refusal, Refusal::Busy | Refusal::Version);
            let condition = refusal_condition(call, *refusal);
            assert_eq!(condition.may_be_in_progress(), passing, "{call:?} {refusal:?}");
        }
    }
}

#[test]
fn helper_refusals_map_to_csi_error_conditions() {
    use Condition::*;
    for (call, refusal, want) in [
        (NodeCall::Stage, Refusal::MountedDifferently, Incompatible),
        (NodeCall::Publish, Refusal::MountedDifferently, Incompatible),
        (NodeCall::Publish, Refusal::NotStaged, NotPrepared),
        (NodeCall::Stage, Refusal::DeviceNotFound, NotFound),
        (NodeCall::Stats, Refusal::VolumeNotAtPath, NotFound),
        (NodeCall::Stats, Refusal::PathNotPlain, NotFound),
        (NodeCall::Expand, Refusal::PathNotPlain, NotFound),
        (NodeCall::Stage, Refusal::PathNotPlain, InvalidField),
        (NodeCall::Expand, Refusal::SizeOutOfRange, CapacityOutOfRange),
        (NodeCall::Stage, Refusal::UnknownContent, ContentRefused),
        (NodeCall::Stage, Refusal::OriginUntold, ContentRefused),
        (NodeCall::Stage, Refusal::UsedRaw, ContentRefused),
        (NodeCall::Stage, Refusal::DeviceWithoutSerial, NotPrepared),
    ] {
        let condition = failure_of(call, &HelperError::Refused(refusal.into())).condition();
        assert_eq!(condition, want, "{call:?} {refusal:?}");
    }
}

/// Growth and sync come after the mount, so kubelet must not assume that a failed stage or
/// publish had no effect.
#[test]
fn failed_step_after_mount_may_be_in_progress() {
    for step in Step::ALL {
        let failed = HelperError::Failed(Failed::call(*step, 5));
        for call in NodeCall::ALL {
            let failure = failure_of(call, &failed);
            let behind = matches!(call, NodeCall::Stage | NodeCall::Publish)
                && matches!(step, Step::Grow | Step::Sync);
            let code = if behind { Code::Aborted } else { Code::Internal };
            assert_eq!(failure.condition().code(), code, "{call:?} {step:?}");
            assert_eq!(failure.condition().may_be_in_progress(), behind, "{call:?} {step:?}");
            assert!(failure.text().contains("os error 5"), "{failure}");
        }
    }
}

/// Signal 9 also brings the advice to raise the memory limit.
#[test]
fn failed_step_reports_cause_and_remedy() {
    let denied = Failed {
        node: Some(ebs_csi_wire::Node { uid: 0, gid: 485, mode: 0o660 }),
        ..Failed::call(Step::FindDevice, EACCES)
    };
    let ended = |end: fn(NonZeroU8) -> ToolEnd, number| {
        Failed::tool(Step::Check, end(NonZeroU8::new(number).unwrap()))
    };
    for (name, call, failed, words) in [
        (
            "denied growth",
            NodeCall::Expand,
            Failed::call(Step::Grow, EPERM),
            &["CAP_SYS_RESOURCE", "the next stage"][..],
        ),
        (
            "denied device node",
            NodeCall::Stage,
            denied,
            &["0:485 mode 0660", "restart the mount-helper", "udev"],
        ),
        ("exit status", NodeCall::Stage, ended(ToolEnd::Exited, 9), &["status 9"]),
        (
            "SIGKILL",
            NodeCall::Stage,
            ended(ToolEnd::Signalled, SIGKILL),
            &["signal 9; when that comes again", "raise the memory limit"],
        ),
        (
            "another signal",
            NodeCall::Stage,
            ended(ToolEnd::Signalled, 11),
            &["signal 11; it is tried again"],
        ),
    ] {
        let failure = failure_of(call, &HelperError::Failed(failed));
        for word in words {
            assert!(failure.text().contains(word), "{name}: {failure}");
        }
    }
}

#[test]
fn helper_error_without_outcome_may_be_in_progress() {
    let lost = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    for error in [
        HelperError::Pending,
        HelperError::Crowded,
        HelperError::Silent,
        HelperError::Unproved,
        HelperError::Lost(lost()),
        HelperError::Foreign("x".into()),
        HelperError::Down { address: "unix:///h".to_owned(), source: lost() },
    ] {
        for deadline in [chosen_deadline(), Deadline::after(Duration::from_secs(60))] {
            let failure = failure(NodeCall::Stage, &VOLUME, &"/k/p", &error, deadline);
            assert!(failure.condition().may_be_in_progress(), "{error:?}");
        }
    }
}
