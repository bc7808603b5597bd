//! A small container orchestrator: what external-provisioner, -attacher, -resizer, -snapshotter and kubelet do, over the CSI sockets alone.

mod attempt;
mod kubelet;
mod kubelet_paths;
mod observer;
mod sidecars;
mod volume;

pub use attempt::{Attempts, CoError, Patience};
pub use kubelet::{Kubelet, Published, Staged};
pub use observer::Observer;
pub use sidecars::{Attachment, Co, Snapshot};
pub use volume::{Claim, Content, Source, Volume};

use std::path::Path;

use tonic::transport::{Channel, Endpoint};

/// A channel to a CSI socket, which connects when it is used and again when the process behind it was restarted.
fn channel(socket: &Path) -> Result<Channel, CoError> {
    let fail = |why: String| CoError::Socket {
        socket: socket.to_owned(),
        why,
    };
    let text = socket
        .to_str()
        .ok_or_else(|| fail("its path is not UTF-8".to_owned()))?;
    let endpoint =
        Endpoint::from_shared(format!("unix://{text}")).map_err(|e| fail(e.to_string()))?;
    Ok(endpoint.connect_lazy())
}
