//! How an operation can end otherwise than well: refused by a rule, or failed at a step.
use crate::device::DeviceError;
use ebs_csi_wire::{Failed, Outcome, Refusal, Refused, Step, ToolEnd};
use rustix::io::Errno;
use std::num::NonZeroI32;

/// Why an operation did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A rule or a fact forbids it.
    Refused(Refused),
    /// A step that should have worked did not.
    Failed(Failed),
    /// It wants a tool, and there is no place for one: it begins anew when there is.
    NoPlace,
}

/// Result of an operation or of a part of it.
pub type Done<T> = Result<T, Stop>;

impl From<Refusal> for Stop {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Stop {
    /// As it is answered; None when the operation begins anew.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Refused(refused) => Some(Outcome::Refused(refused)),
            Self::Failed(failed) => Some(Outcome::Failed(failed)),
            Self::NoPlace => None,
        }
    }
}

/// A system call failed at this step.
pub fn failed(step: Step, errno: Errno) -> Stop {
    Stop::Failed(Failed {
        step,
        errno: NonZeroI32::new(errno.raw_os_error()),
        tool: None,
        node: None,
    })
}

/// A tool ended otherwise than well at this step.
pub fn tool_failed(step: Step, end: ToolEnd) -> Stop {
    Stop::Failed(Failed {
        step,
        errno: None,
        tool: Some(end),
        node: None,
    })
}

/// A step failed without a system call of ours failing.
pub fn broken(step: Step) -> Stop {
    Stop::Failed(Failed {
        step,
        errno: None,
        tool: None,
        node: None,
    })
}

/// Turns the error of a system call into the step that failed.
pub trait At<T> {
    /// Name the step.
    fn at(self, step: Step) -> Done<T>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: Step) -> Done<T> {
        self.map_err(|errno| failed(step, errno))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: Step) -> Done<T> {
        self.map_err(|e| failed(step, Errno::from_io_error(&e).unwrap_or(Errno::IO)))
    }
}

impl<T> At<T> for Result<T, DeviceError> {
    fn at(self, step: Step) -> Done<T> {
        self.map_err(|e| match e {
            DeviceError::Absent => Refusal::DeviceNotFound.into(),
            DeviceError::Ambiguous => Refusal::DeviceAmbiguous.into(),
            DeviceError::Mismatch => Refusal::DeviceMismatch.into(),
            DeviceError::WithoutSerial => Refusal::DeviceWithoutSerial.into(),
            DeviceError::Os(errno) => failed(step, errno),
            DeviceError::Closed(node) => Stop::Failed(Failed {
                step,
                errno: NonZeroI32::new(Errno::ACCESS.raw_os_error()),
                tool: None,
                node: Some(node),
            }),
        })
    }
}

/// A path that cannot be resolved plainly is refused; anything else is a failure.
pub fn at_path<T>(result: Result<T, Errno>) -> Done<T> {
    result.map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::NOENT => Refusal::PathNotPlain.into(),
        Errno::XDEV => Refusal::PathOutside.into(),
        other => failed(Step::ResolvePath, other),
    })
}
