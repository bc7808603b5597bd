//! The faults that a request can have.

use crate::state::resources::volume::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a reply is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The connection stays open without a reply, then closes.
    Hang,
    /// The connection closes.
    Close,
    /// The connection is reset.
    Reset,
}

/// How a reply with status 200 is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Garble {
    /// The body is not XML.
    Unparsable,
    /// The body is empty.
    Empty,
    /// The body is XML with another root element.
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
    /// EC2's error document.
    #[default]
    Xml,
    /// An HTML page as from a load balancer.
    Html,
    /// An empty body.
    Empty,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Replies with an error.
    Error {
        /// The EC2 error code.
        code: String,
        /// The HTTP status.
        #[serde(default = "internal")]
        status: u16,
        /// The message.
        #[serde(default)]
        message: String,
        /// The form of the body.
        #[serde(default)]
        body: Body,
        /// Whether the change takes effect nevertheless.
        #[serde(default)]
        effect: bool,
    },
    /// Replies with `RequestLimitExceeded`.
    Throttle {
        /// The header `x-amz-retry-after`, in milliseconds.
        #[serde(default)]
        retry_after_ms: Option<u64>,
    },
    /// Sends no reply.
    LoseReply {
        /// How the reply is lost.
        how: Loss,
        /// Whether the change takes effect.
        #[serde(default)]
        effect: bool,
        /// How long the connection hangs before it closes, in milliseconds.
        #[serde(default = "minute")]
        hold_ms: u64,
    },
    /// Replies with status 200 and a malformed body.
    Garble {
        /// How the reply is malformed.
        how: Garble,
        /// Whether the change takes effect.
        #[serde(default = "yes")]
        effect: bool,
    },
    /// Sends the reply slowly.
    Slow {
        /// The delay before the first byte, in milliseconds.
        #[serde(default)]
        first_byte_ms: u64,
        /// The delay between bytes, in milliseconds.
        #[serde(default)]
        byte_ms: u64,
    },
    /// The request takes effect a second time.
    Duplicate {
        /// How much later the second time is, in milliseconds.
        after_ms: u64,
    },
    /// AttachVolume: the attachment stays `attaching` for long.
    StuckAttach {
        /// How long, in milliseconds; absent: forever.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// DescribeInstances shows `attached` before DescribeVolumes does.
    SkewAttach {
        /// How much earlier, in milliseconds.
        ms: u64,
    },
    /// DetachVolume: the attachment stays `detaching` or `busy` for long.
    StuckDetach {
        /// How long, in milliseconds; absent: forever.
        #[serde(default)]
        for_ms: Option<u64>,
        /// Whether to show `busy`.
        #[serde(default)]
        busy: bool,
    },
    /// A Describe call shows an earlier state. Without `consistency`, the state from before the
    /// rule was added is not kept: an older read shows the state at the time when the rule was
    /// added.
    Stale {
        /// How much earlier, in milliseconds.
        ms: u64,
    },
    /// Describe calls do not show an existing resource.
    Unseen {
        /// The resource's id.
        id: String,
    },
    /// AttachVolume: the device name is in use, though no Describe call lists it.
    DeviceTaken {
        /// Whether the name stays in use on that instance.
        #[serde(default = "yes")]
        stays: bool,
    },
    /// AttachVolume: another volume gets the device name on that instance just before.
    DeviceRaced {},
    /// Another user of the account makes a call.
    Foreign {
        /// The name of the action.
        action: String,
        /// The parameters of the action; `$VolumeId` stands for the client's parameter of that
        /// name, `$made` for the resource that the client's call created.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
        /// How long after the client's request, in milliseconds; absent: just before.
        #[serde(default)]
        after_ms: Option<u64>,
    },
    /// CreateVolume and CopyVolumes are accepted and fail later.
    FailCreate {
        /// The final result.
        outcome: Outcome,
        /// How long after the reply the creation fails, in milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// CreateSnapshot is accepted; the snapshot ends in `error`.
    FailSnapshot {
        /// How long after the reply the snapshot fails, in milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// ModifyVolume is accepted; the modification ends in `failed`.
    FailModify {
        /// How long after the reply the modification fails, in milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// EnableFastSnapshotRestores answers with status 200 and failures.
    Unsuccessful {
        /// The item's code.
        code: String,
        /// The item's message.
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
