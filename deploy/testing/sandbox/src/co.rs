//! A small container orchestrator: does the work of external-provisioner, -attacher, -resizer,
//! -snapshotter and kubelet over the CSI sockets alone.

mod attempt;
mod kubelet;
mod observer;
mod sidecars;
mod volume;

pub use attempt::{Attempts, CoError, Result, RetryPolicy};
pub use kubelet::Kubelet;
pub use observer::{Observer, safe_detach};
pub use sidecars::{Attachment, Co, Snapshot};
pub use volume::{Claim, Content, GIB, Source, Volume};

use std::path::Path;

use tonic::transport::{Channel, Endpoint};

/// Returns a channel to a CSI socket. The channel connects on first use, and again after the
/// process behind the socket was restarted.
pub(crate) fn channel(socket: &Path) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let fail = |e| CoError::own(format!("CSI socket {}", socket.display()), e);
    Ok(endpoint.map_err(fail)?.connect_lazy())
}
