//! Expected answers; any other answer fails the test at the caller's line.
use ebs_csi_wire::{Outcome, Refusal, Refused, Usage};

/// Returns whether nothing was left to do.
#[track_caller]
pub(crate) fn done(outcome: Outcome) -> bool {
    unstaged(outcome).already
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
pub(crate) fn usage(outcome: Outcome) -> Usage {
    match outcome {
        Outcome::Usage(usage) => usage,
        other => panic!("{other:?}"),
    }
}

/// Returns the reason of a refusal.
#[track_caller]
pub(crate) fn reason(outcome: Outcome) -> Refusal {
    refusal(outcome).reason
}

#[track_caller]
pub(crate) fn assert_refused(outcome: Outcome, reason: Refusal) {
    assert_eq!(self::reason(outcome), reason);
}

/// Returns a refusal with what the helper saw.
#[track_caller]
pub(crate) fn refusal(outcome: Outcome) -> Refused {
    match outcome {
        Outcome::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}
