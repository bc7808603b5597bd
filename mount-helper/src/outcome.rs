//! How an operation can end without success: refused by a rule, or failed at a step.
use crate::disk::device::DeviceError;
use crate::sys;
use crate::tool::PlaceKind;
use ebs_csi_wire::{
    ContentState, Failed, FsType, Observation, Outcome, Refusal, Refused, Step, ToolEnd,
};
use rustix::io::Errno;
use std::num::NonZeroI32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A rule or a fact forbids it.
    Refused(Refused),
    /// A step that should have worked did not.
    Failed(Failed),
    /// The operation needs a tool, and no tool of the kind can run now. The operation is started
    /// again when one can.
    NoPlace(PlaceKind),
}

pub(crate) type Result<T, E = Stop> = std::result::Result<T, E>;

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
    /// Converts to the outcome that is answered, or to the kind of place for which the operation
    /// waits.
    pub(crate) fn outcome(self) -> Result<Outcome, PlaceKind> {
        match self {
            Self::Refused(refused) => Ok(Outcome::Refused(refused)),
            Self::Failed(failed) => Ok(Outcome::Failed(failed)),
            Self::NoPlace(kind) => Err(kind),
        }
    }
}

pub(crate) fn failed(step: Step, errno: Errno) -> Stop {
    Stop::Failed(Failed {
        step,
        errno: NonZeroI32::new(errno.raw_os_error()),
        tool: None,
        node: None,
    })
}

pub(crate) fn tool_failed(step: Step, end: ToolEnd) -> Stop {
    Stop::Failed(Failed { step, errno: None, tool: Some(end), node: None })
}

/// Builds a failure at this step without an errno.
pub(crate) fn broken(step: Step) -> Stop {
    Stop::Failed(Failed { step, errno: None, tool: None, node: None })
}

/// Builds the refusal of a file system with errors that only a person can repair.
pub(crate) fn damaged(fs: FsType) -> Stop {
    let seen = Observation::Content { signature: fs.into(), state: ContentState::Damaged };
    Refused::because(Refusal::FilesystemErrors, seen).into()
}

/// Converts the error of a system call into a failure at a step.
pub(crate) trait At<T> {
    fn at(self, step: Step) -> Result<T>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: Step) -> Result<T> {
        self.map_err(|errno| failed(step, errno))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: Step) -> Result<T> {
        self.map_err(|e| failed(step, sys::errno_of(&e)))
    }
}

impl<T> At<T> for Result<T, DeviceError> {
    fn at(self, step: Step) -> Result<T> {
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

/// Converts the error of resolving a path: a path that cannot be resolved plainly or that leaves
/// the root is refused; anything else is a failure.
pub(crate) fn at_path<T>(result: Result<T, Errno>) -> Result<T> {
    result.map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::NOENT => Refusal::PathNotPlain.into(),
        Errno::XDEV => Refusal::PathOutside.into(),
        other => failed(Step::ResolvePath, other),
    })
}
