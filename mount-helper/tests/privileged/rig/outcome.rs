//! Expected answers; any other answer fails the test at the caller's line.
use ebs_csi_wire::{Outcome, Refusal, Refused};

#[track_caller]
pub(crate) fn done(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Done(done) => done.already,
        other => panic!("{other:?}"),
    }
}

/// Returns the whole answer to an unstage.
#[track_caller]
pub(crate) fn unstaged(outcome: Outcome) -> ebs_csi_wire::Done {
    match outcome {
        Outcome::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn staged(outcome: Outcome) -> ebs_csi_wire::Staged {
    match outcome {
        Outcome::Staged(staged) => staged,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn refused(outcome: Outcome) -> Refusal {
    told(outcome).reason
}

#[track_caller]
pub(crate) fn assert_refused(outcome: Outcome, reason: Refusal) {
    assert_eq!(refused(outcome), reason);
}

/// Returns a refusal with what the helper saw.
#[track_caller]
pub(crate) fn told(outcome: Outcome) -> Refused {
    match outcome {
        Outcome::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}
