//! The open connections: a bounded number, of which one yields to a new one.

use std::cmp::Reverse;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

use super::MAX_CONNECTIONS;

/// The connections and the tasks that serve them. When it is dropped, all of them end.
#[derive(Debug, Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    open: Vec<Open>,
    clock: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Open {
    client: IpAddr,
    task: AbortHandle,
    last_active: Arc<AtomicU64>,
}

impl Connections {
    /// Waits until a connection has ended; for ever while there is none.
    pub(super) async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
        self.forget_ended();
    }

    /// Serves a new connection. Closes another when there are too many.
    pub(super) fn add<S>(
        &mut self,
        stream: TcpStream,
        client: IpAddr,
        serve: impl FnOnce(Connection) -> S,
    ) where
        S: Future<Output = ()> + Send + 'static,
    {
        self.forget_ended();
        if self.open.len() >= MAX_CONNECTIONS {
            self.close_idlest();
        }
        let last_active = Arc::new(AtomicU64::new(0));
        let activity = Activity { clock: Arc::clone(&self.clock), last: Arc::clone(&last_active) };
        activity.note();
        let task = self.tasks.spawn(serve(Connection { stream, activity }));
        self.open.push(Open { client, task, last_active });
    }

    fn forget_ended(&mut self) {
        self.open.retain(|open| !open.task.is_finished());
    }

    /// Closes a connection of the client with most connections: the one that has moved no byte for
    /// longest.
    pub(super) fn close_idlest(&mut self) {
        let open = &self.open;
        let connections_of = |client| open.iter().filter(|open| open.client == client).count();
        let idlest = (0..open.len()).min_by_key(|&at| {
            let last_active = open[at].last_active.load(Ordering::Relaxed);
            (Reverse(connections_of(open[at].client)), last_active)
        });
        if let Some(idlest) = idlest {
            self.open.swap_remove(idlest).task.abort();
        }
    }
}

/// When a connection last moved bytes, as a number that grows with each activity of any connection.
#[derive(Debug)]
struct Activity {
    clock: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
}

impl Activity {
    fn note(&self) {
        self.last.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A connection of a client. Unless the client has received everything, it is reset when it is
/// dropped: otherwise the kernel would keep what a client does not read, after the connection has
/// left the process.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    activity: Activity,
}

impl Connection {
    /// Returns whether one side has not ended yet, or has not acknowledged all bytes.
    pub(super) fn is_connected(&self) -> bool {
        self.stream.peer_addr().is_ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_connected() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.activity.note();
        Poll::Ready(read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.activity.note();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        self.activity.note();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
