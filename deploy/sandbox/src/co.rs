//! A small container orchestrator: does the work of external-provisioner, -attacher, -resizer,
//! -snapshotter and kubelet over the CSI sockets alone.

mod attempt;
mod kubelet;
mod kubelet_paths;
mod observer;
mod sidecars;
mod volume;

pub use attempt::{Attempts, CoError, RetryPolicy};
pub use kubelet::{Kubelet, Published, Staged};
pub use observer::Observer;
pub use sidecars::{Attachment, Co, Snapshot};
pub use volume::{Claim, Content, Source, Volume};

use std::path::Path;

use tonic::transport::{Channel, Endpoint};

/// Returns a channel to a CSI socket. The channel connects on first use, and again after the
/// process behind the socket was restarted.
pub(crate) fn channel(socket: &Path) -> Result<Channel, CoError> {
    let fail = |why: String| CoError::Socket { socket: socket.to_owned(), why };
    let text = socket.to_str().ok_or_else(|| fail("its path is not UTF-8".to_owned()))?;
    let endpoint =
        Endpoint::from_shared(format!("unix://{text}")).map_err(|e| fail(e.to_string()))?;
    Ok(endpoint.connect_lazy())
}
