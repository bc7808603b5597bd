//! The processes that may call on the SafeDetach socket.

use ebs_csi_proto::{Condition, Failure};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Status};

/// The most characters of a peer's own words in the log.
const MAX_WORDS: usize = 256;

/// Returns the process that calls, by the kernel's statement, and its own words about the call.
pub(super) fn describe<T>(request: &Request<T>, words: &str) -> String {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    let words: String = words.chars().take(MAX_WORDS).collect();
    match peer.map(|peer| (peer.uid(), peer.pid())) {
        Some((uid, Some(pid))) => format!("process {pid} of user {uid}, which says {words:?}"),
        Some((uid, None)) => format!("a process of user {uid}, which says {words:?}"),
        None => format!("an unknown process, which says {words:?}"),
    }
}

/// Refuses the call of a peer whose user id is not listed. The kernel's statement about the peer
/// counts (`SO_PEERCRED`, unix(7)); without one, the call is refused.
pub(super) fn check(allowed: &[u32], request: Request<()>) -> Result<Request<()>, Status> {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    match peer {
        Some(peer) if allowed.contains(&peer.uid()) => Ok(request),
        Some(peer) => {
            tracing::warn!(peer.uid = peer.uid(), "a call on the SafeDetach socket is refused");
            Err(refused(&format!("user id {} is not one of them", peer.uid())))
        }
        None => Err(refused("who calls is not known")),
    }
}

fn refused(why: &str) -> Status {
    let text = format!("only the processes of --safe-detach-peers may call here: {why}");
    Failure::new(Condition::NotPermitted, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_without_peer_credentials_is_denied() {
        let refused = check(&[0, 64532], Request::new(())).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    }
}
