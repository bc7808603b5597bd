//! The faults that a request can have.

use crate::state::resources::CreateOutcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a reply is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The connection stays open without a reply, then closes.
    Hang,
    Close,
    Reset,
}

/// How a reply with status 200 is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Garble {
    Unparsable,
    Empty,
    WrongRoot,
    /// The body is cut-off XML; `Content-Length` matches the cut body.
    Cut,
    /// `Content-Length` is larger than the body.
    Short,
}

/// The body of an injected error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    #[default]
    Xml,
    /// An HTML page as from a load balancer.
    Html,
    Empty,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    Error {
        code: String,
        #[serde(default = "internal")]
        status: u16,
        #[serde(default)]
        message: String,
        #[serde(default)]
        body: Body,
        /// Whether the change takes effect nevertheless.
        #[serde(default)]
        effect: bool,
    },
    /// Replies with `RequestLimitExceeded`, and with the header `x-amz-retry-after` if given.
    Throttle { retry_after_ms: Option<u64> },
    LoseReply {
        how: Loss,
        #[serde(default)]
        effect: bool,
        /// How long the connection hangs before it closes, in milliseconds.
        #[serde(default = "minute")]
        hold_ms: u64,
    },
    /// Replies with status 200 and a malformed body.
    Garble {
        how: Garble,
        #[serde(default = "yes")]
        effect: bool,
    },
    Slow {
        #[serde(default)]
        first_byte_ms: u64,
        /// The delay between bytes, in milliseconds.
        #[serde(default)]
        byte_ms: u64,
    },
    /// The request takes effect a second time.
    Duplicate { after_ms: u64 },
    /// AttachVolume: the attachment stays `attaching` for long; without a time, forever.
    StuckAttach { for_ms: Option<u64> },
    /// DescribeInstances shows `attached` this much earlier than DescribeVolumes does.
    SkewAttach { ms: u64 },
    /// DetachVolume: the attachment stays `detaching` or `busy` for long; without a time, forever.
    StuckDetach {
        for_ms: Option<u64>,
        #[serde(default)]
        busy: bool,
    },
    /// A Describe call shows the state of this much earlier. Without `consistency`, the state from
    /// before the rule was added is not kept: an older read shows the state at the time when the
    /// rule was added.
    Stale { ms: u64 },
    /// Describe calls do not show an existing resource.
    Unseen { id: String },
    /// AttachVolume: the device name is in use, though no Describe call lists it.
    DeviceTaken {},
    /// AttachVolume: another volume gets the device name on that instance just before.
    DeviceRaced {},
    /// Another user of the account makes a call.
    Foreign {
        action: String,
        /// The parameters of the action; `$VolumeId` stands for the client's parameter of that
        /// name, `$made` for the resource that the client's call created.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
        /// How long after the client's request, in milliseconds; absent: just before.
        after_ms: Option<u64>,
    },
    /// CreateVolume and CopyVolumes are accepted and fail later.
    FailCreate {
        outcome: CreateOutcome,
        /// How long after the reply the creation fails, in milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// CopyVolumes: the copy has its source's encryption and key, whatever the request has.
    KeepSourceKey {},
    /// CreateSnapshot is accepted; the snapshot ends in `error`.
    FailSnapshot {
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// ModifyVolume is accepted; the modification ends in `failed`.
    FailModify {
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// EnableFastSnapshotRestores answers with status 200 and failures.
    Unsuccessful {
        code: String,
        #[serde(default)]
        message: String,
    },
}

fn internal() -> u16 {
    500
}
fn minute() -> u64 {
    60_000
}
fn half_second() -> u64 {
    500
}
fn yes() -> bool {
    true
}
