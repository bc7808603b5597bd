//! Expected answers; any other answer fails the test at the caller's line.
use ebs_csi_wire::{Done, Expanded, Holding, Outcome, Refusal, Refused, Staged, Usage};

/// Defines functions that return what an outcome of one kind holds.
macro_rules! expected {
    ($($name:ident $variant:ident $held:ident;)+) => {
        $(#[track_caller]
        pub(crate) fn $name(outcome: Outcome) -> $held {
            match outcome {
                Outcome::$variant(held) => held,
                other => panic!("{other:?}"),
            }
        })+
    };
}

expected! {
    unstaged Done Done;
    staged Staged Staged;
    usage Usage Usage;
    refusal Refused Refused;
    holding Holding Holding;
    expanded Expanded Expanded;
}

/// Returns whether nothing was left to do.
#[track_caller]
pub(crate) fn done(outcome: Outcome) -> bool {
    unstaged(outcome).already
}

#[track_caller]
pub(crate) fn reason(outcome: Outcome) -> Refusal {
    refusal(outcome).reason
}

#[track_caller]
pub(crate) fn assert_refused(outcome: Outcome, reason: Refusal) {
    assert_eq!(self::reason(outcome), reason);
}
