//! Answers that a test expects; any other fails it where it asked.
use ebs_csi_wire::{Outcome, Refusal, Refused};

#[track_caller]
pub(crate) fn done(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Done(done) => done.already,
        other => panic!("{other:?}"),
    }
}

/// The whole answer to an unstage.
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

/// A refusal with what was seen.
#[track_caller]
pub(crate) fn told(outcome: Outcome) -> Refused {
    match outcome {
        Outcome::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}
