//! What can go wrong with a request.

use super::caller_refusal::CallerRefusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a reply is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The connection stays open without an answer, then closes.
    Hang,
    /// The connection closes.
    Close,
    /// The connection is reset.
    Reset,
}

/// How a 200 is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Garble {
    /// Not XML.
    Unparsable,
    /// No body.
    Empty,
    /// XML with another root element.
    WrongRoot,
    /// XML cut in the middle, with a length that says so.
    Cut,
    /// The length says more than comes.
    Short,
}

/// The body of an injected error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// EC2's error document.
    #[default]
    Xml,
    /// A load balancer's page.
    Html,
    /// Nothing.
    Empty,
}

/// How an accepted creation fails later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateFailure {
    /// The volume is no longer there.
    Vanish,
    /// The volume stays in state `error`.
    Error,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// An error answer.
    Error {
        /// EC2's code.
        code: String,
        /// HTTP status.
        #[serde(default = "internal")]
        status: u16,
        /// The message.
        #[serde(default)]
        message: String,
        /// Its form.
        #[serde(default)]
        body: Body,
        /// Whether the change is made all the same.
        #[serde(default)]
        effect: bool,
    },
    /// RequestLimitExceeded.
    Throttle {
        /// The header `x-amz-retry-after`, milliseconds.
        #[serde(default)]
        retry_after_ms: Option<u64>,
    },
    /// No answer.
    LoseReply {
        /// How.
        how: Loss,
        /// Whether the change is made.
        #[serde(default)]
        effect: bool,
        /// How long the connection hangs before it closes, milliseconds.
        #[serde(default = "minute")]
        hold_ms: u64,
    },
    /// A broken 200.
    Garble {
        /// How.
        how: Garble,
        /// Whether the change is made.
        #[serde(default = "yes")]
        effect: bool,
    },
    /// A reply that trickles.
    Slow {
        /// To the first byte, milliseconds.
        #[serde(default)]
        first_byte_ms: u64,
        /// Between bytes, milliseconds.
        #[serde(default)]
        byte_ms: u64,
    },
    /// The request takes effect a second time.
    Duplicate {
        /// How much later, milliseconds.
        after_ms: u64,
    },
    /// `attaching` for long.
    StuckAttach {
        /// How long; absent: for ever.
        #[serde(default)]
        for_ms: Option<u64>,
        /// Whether the instance's limit is overlooked.
        #[serde(default)]
        over_limit: bool,
    },
    /// DescribeInstances says attached before DescribeVolumes does.
    SkewAttach {
        /// How much earlier, milliseconds.
        ms: u64,
    },
    /// The device appears on the instance long after `attached`.
    LateDevice {
        /// How long after, milliseconds; absent: never.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// `detaching` or `busy` for long.
    StuckDetach {
        /// How long; absent: for ever.
        #[serde(default)]
        for_ms: Option<u64>,
        /// Show `busy`.
        #[serde(default)]
        busy: bool,
    },
    /// A Describe call shows the world as it was. Without `consistency`, what was before the rule was made is shown as of then.
    Stale {
        /// How long ago, milliseconds.
        ms: u64,
    },
    /// Describe calls do not know a resource that is there.
    Unseen {
        /// Its id.
        id: String,
    },
    /// AttachVolume: the name is in use, though nothing lists it.
    DeviceTaken {
        /// It stays so on that instance.
        #[serde(default = "yes")]
        stays: bool,
    },
    /// AttachVolume: another volume gets the name on that instance a moment before.
    DeviceRaced {},
    /// Another user of the account makes a call.
    Foreign {
        /// The action.
        action: String,
        /// Its parameters; `$VolumeId` is the client's parameter of that name, `$made` what the client's call made.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
        /// How long after the client's request, milliseconds; absent: just before.
        #[serde(default)]
        after_ms: Option<u64>,
    },
    /// The caller is sent away.
    Refuse {
        /// Why.
        refused: CallerRefusal,
    },
    /// CreateVolume and CopyVolumes are accepted and fail later.
    FailCreate {
        /// How it ends.
        outcome: CreateFailure,
        /// When, milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// CreateSnapshot is accepted and ends in `error`.
    FailSnapshot {
        /// When, milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// CreateSnapshot is accepted and stays `pending`.
    StuckSnapshot {
        /// How long; absent: for ever.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// ModifyVolume is accepted and stays `modifying`.
    StuckModify {
        /// How long; absent: for ever.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// ModifyVolume comes to `optimizing`, and the volume has its old shape for longer.
    LateResize {
        /// How much longer, milliseconds.
        ms: u64,
    },
    /// ModifyVolume is accepted and ends in `failed`.
    FailModify {
        /// When, milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// EnableFastSnapshotRestores answers 200 with failures.
    Unsuccessful {
        /// The item's code.
        code: String,
        /// The item's message.
        #[serde(default)]
        message: String,
    },
    /// An empty page with a next token.
    EmptyPage {},
    /// The page token has expired.
    ExpireToken {},
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
