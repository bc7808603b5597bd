//! How the processes treat a request, apart from carrying it out.

use std::time::Duration;

use crate::path::PathRule;
use crate::reply::OperationKind;

/// The connections of the node-agent that a request uses: a quick one never waits for a slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// For requests that format, check, mount or write back file systems that may be large.
    Slow,
    /// For other requests.
    Quick,
}

/// Operations that may be slow for the same reason. Each class has workers of its own in the
/// helper. Changes of one volume run one after the other; `Look` and `Inspect` do not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerClass {
    /// Copies or removes mounts, and writes to no disk.
    Mount,
    /// Reads something about one volume. A file system that hangs blocks its worker.
    Look,
    /// Writes back a file system. A disk that hangs blocks its worker.
    Release,
    /// Waits for a disk, reads it, mounts it and runs tools on it.
    Disk,
    /// Reads something about the node. No request joins another one.
    Inspect,
}

impl WorkerClass {
    /// All classes, those that block the least first.
    pub const ALL: [Self; 5] = [Self::Mount, Self::Look, Self::Inspect, Self::Release, Self::Disk];

    /// Returns the place of the class in an array with one element for each class.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One row of the table of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestProperties {
    /// The name in logs, and the label of metrics.
    pub name: &'static str,
    /// What the request asks for.
    pub about: &'static str,
    /// The connections in the node-agent.
    pub slots: Slots,
    /// The workers in the helper.
    pub workers: WorkerClass,
    /// The kind under which the operation is listed while it runs.
    pub kind: OperationKind,
    /// The operation may take minutes, and a helper that is about to end does not begin it.
    pub may_take_long: bool,
    /// A success is logged, unless such requests come continuously and change nothing.
    pub success_is_logged: bool,
    /// The helper lets the caller wait at least this long.
    pub least_wait: Duration,
    /// The paths, and where each may lead.
    pub paths: &'static [PathRule],
}

/// A request that changes nothing.
pub(crate) const LOOK: RequestProperties = RequestProperties {
    name: "",
    about: "",
    slots: Slots::Quick,
    workers: WorkerClass::Look,
    kind: OperationKind::Stats,
    may_take_long: false,
    success_is_logged: false,
    least_wait: Duration::ZERO,
    paths: &[],
};

/// A request that changes something.
pub(crate) const CHANGE: RequestProperties =
    RequestProperties { workers: WorkerClass::Mount, success_is_logged: true, ..LOOK };

/// Defines the table of requests: `message of volume => answer, name, properties;`.
macro_rules! requests {
    ($(
        $(#[doc = $about:literal])+
        $name:ident $(of $($volume:ident).+)? => $answer:ident, $text:literal, $row:expr;
    )+) => {
        one_of! {
            /// The closed table of operations.
            Operation mirrors request::Operation {
                $($(#[doc = $about])+ $name,)+
            }
        }

        $(impl HelperRequest for $name {
            type Answer = $answer;
        })+

        /// The table of requests.
        pub const REQUESTS: &[RequestProperties] = &[$(RequestProperties {
            name: $text,
            about: concat!($($about),+),
            paths: <$name as Wire>::PATHS,
            ..$row
        }),+];

        impl Operation {
            /// Returns how the processes treat the request.
            pub const fn properties(&self) -> &'static RequestProperties {
                /// The messages in the order of the table.
                enum Row { $($name,)+ }
                match self {
                    $(Self::$name(_) => &REQUESTS[Row::$name as usize],)+
                }
            }

            /// Returns the volume of the request; `None` for Hello and Inspect.
            pub const fn volume(&self) -> Option<&VolumeId> {
                match self {
                    $($(Self::$name(request) => Some(&request.$($volume).+),)?)+
                    _ => None,
                }
            }

            /// Returns each path of the request, and where it may lead.
            pub fn paths(&self) -> impl Iterator<Item = (&'static crate::PathRule, &KubeletPath)> {
                let paths = match self {
                    $(Self::$name(request) => request.paths(),)+
                };
                self.properties().paths.iter().zip(paths)
            }

            /// Returns the path at which the operation attaches or removes something.
            pub fn changed_path(&self) -> Option<&KubeletPath> {
                self.paths().find(|(rule, _)| rule.changed).map(|(_, path)| path)
            }
        }
    };
}

pub(crate) use requests;
