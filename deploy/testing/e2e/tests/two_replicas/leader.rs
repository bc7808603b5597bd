//! A socket that forwards to one of several replicas: the one whose sidecar is the leader. A change
//! of leader ends every connection, as when a sidecar loses its lease and exits, and the next
//! connection reaches the new leader's replica.

use std::io;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The forwarding from callers to the leader's replica. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Leader {
    socket: PathBuf,
    replicas: usize,
    at: watch::Sender<usize>,
    accepting: JoinHandle<()>,
}

impl Leader {
    /// Listens at `socket`; the first of these replicas is the leader's.
    pub(crate) fn new(socket: PathBuf, replicas: Vec<PathBuf>) -> io::Result<Self> {
        let listener = UnixListener::bind(&socket)?;
        let (at, leads) = watch::channel(0);
        let number = replicas.len();
        let accepting = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let mut leads = leads.clone();
                let replica = replicas[*leads.borrow_and_update()].clone();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = forward(caller, &replica) => {}
                        _ = leads.changed() => {}
                    }
                });
            }
        });
        Ok(Self { socket, replicas: number, at, accepting })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn hand_over(&self) {
        self.at.send_modify(|at| *at = (*at + 1) % self.replicas);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Copies bytes in both directions until an end closes.
async fn forward(mut caller: UnixStream, replica: &Path) -> io::Result<()> {
    let mut replica = UnixStream::connect(replica).await?;
    tokio::io::copy_bidirectional(&mut caller, &mut replica).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Sends its number to each caller and keeps the connection open.
    fn replica(socket: &Path, number: u8) -> JoinHandle<()> {
        let listener = UnixListener::bind(socket).unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut caller, _)) = listener.accept().await {
                caller.write_all(&[number]).await.unwrap();
                open.push(caller);
            }
        })
    }

    #[tokio::test]
    async fn hand_over_closes_connections_and_switches_leader() {
        let dir = tempfile::tempdir().unwrap();
        let sockets = [dir.path().join("0"), dir.path().join("1")];
        let _running = [replica(&sockets[0], 0), replica(&sockets[1], 1)];
        let leader = Leader::new(dir.path().join("leader"), sockets.to_vec()).unwrap();
        for expected in [0, 1, 0] {
            let mut line = UnixStream::connect(leader.socket()).await.unwrap();
            assert_eq!(line.read_u8().await.unwrap(), expected);
            leader.hand_over();
            assert_eq!(line.read(&mut [0]).await.unwrap(), 0, "the line is closed");
        }
    }
}
