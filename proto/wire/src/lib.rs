//! The types that the processes share: identifiers, paths, and the helper's closed request table.
//!
//! Everything that comes from another process is parsed here, once, into types that cannot hold an
//! invalid value: no other crate handles an unchecked path, identifier or mount flag. Options of a
//! new file system are checked where their table is, in `ebs-csi-policy`. [`Request`] and
//! [`Reply`] are the checked forms of the messages in `helper.proto`; [`frame`] carries them over
//! any byte stream.
//!
//! ```
//! use ebs_csi_wire::{Operation, Request, VolumeId, KubeletPath, Unpublish};
//!
//! let request = Request {
//!     id: 7,
//!     wait: std::time::Duration::from_secs(5),
//!     operation: Operation::Unpublish(Unpublish {
//!         volume: VolumeId::parse("vol-0123456789abcdef0")?,
//!         target: KubeletPath::parse(
//!             "/var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/v/mount",
//!         )?,
//!     }),
//! };
//! let mut stream = ebs_csi_wire::frame::framed(&request.encode())?;
//! let payload = ebs_csi_wire::frame::split(&mut stream)?.ok_or("a whole frame")?;
//! assert_eq!(Request::decode(&payload)?, request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod closed;
mod codec;
pub mod frame;
mod hello;
pub mod ids;
#[cfg(feature = "key")]
mod key;
mod malformed;
pub mod mount;
mod observation;
pub mod path;
mod properties;
mod reply;
mod request;

pub use closed::UnknownNumber;
pub use hello::{Challenge, Hello, KeyStep, Nonce, Proof};
pub use ids::{AttachedAt, DeviceName, InstanceId, SnapshotId, VolumeId};
#[cfg(feature = "key")]
pub use key::{Key, KeyFile, KeyFileError, Side, Transcript};
pub use malformed::Malformed;
pub use mount::{FsType, MountFlag};
pub use observation::{
    ContentState, Features, KernelVersion, Observation, Refusal, Refused, Signature, largest_block,
};
pub use path::{KubeletPath, PathRule, PlaceFor};
pub use properties::{RequestProperties, Slots, WorkerClass};
pub use reply::*;
pub use request::*;

/// The oldest version of the helper's protocol that this release speaks over a unix socket.
pub const PROTOCOL_OLDEST: u32 = 3;
/// The newest version of the helper's protocol that this release speaks over a unix socket.
pub const PROTOCOL_NEWEST: u32 = 3;
/// The version in which both sides prove a key, over transports whose peer the kernel does not
/// name.
pub const PROTOCOL_WITH_KEY: u32 = 4;

/// The ports of AF_VSOCK at which an unprivileged program can listen: above LAST_RESERVED_PORT of
/// net/vmw_vsock/af_vsock.c and below VMADDR_PORT_ANY of linux/vm_sockets.h.
pub const VSOCK_PORTS: std::ops::Range<u32> = 1024..u32::MAX;

/// Parses a CID or a port of AF_VSOCK, in decimal digits alone: no sign, no space, no second way to
/// write a number.
pub fn parse_vsock_number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

/// The wire messages, generated from `helper.proto`. Nothing in them has been checked.
pub mod pb {
    #![allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all)]
    include!("gen/helper.rs");
}
