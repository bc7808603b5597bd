//! Serves one socket and forwards each RPC by the service in its path, without decoding its
//! messages.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebs_csi_proto::{Condition, Failure};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::io::Errno;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::route::{self, Backend};

/// The pause before the next accept when no descriptor or memory is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// One process and the connection to it, which all RPCs share.
#[derive(Debug)]
struct Target {
    backend: Backend,
    socket: PathBuf,
    connection: Mutex<Option<SendRequest<Incoming>>>,
}

impl Target {
    fn new(backend: Backend, directory: &Path) -> Self {
        Self { backend, socket: directory.join(backend.socket()), connection: Mutex::new(None) }
    }

    /// Returns a connection that accepts requests: the present one, or a new one when the process
    /// was restarted.
    async fn connection(&self) -> io::Result<SendRequest<Incoming>> {
        let mut current = self.connection.lock().await;
        if let Some(sender) = current.as_mut()
            && !sender.is_closed()
            && sender.ready().await.is_ok()
        {
            return Ok(sender.clone());
        }
        let stream = UnixStream::connect(&self.socket).await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!("connection to a process ended: {e}");
            }
        });
        *current = Some(sender.clone());
        Ok(sender)
    }

    async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let answer = match self.connection().await {
            Ok(mut sender) => sender.send_request(request).await.map_err(io::Error::other),
            Err(e) => Err(e),
        };
        match answer {
            Ok(reply) => reply.map(BodyExt::boxed_unsync),
            Err(e) => {
                tracing::warn!(process = self.backend.name(), "cannot pass an RPC on: {e}");
                let name = self.backend.name();
                failure_response(Failure::new(
                    Condition::BackendDown,
                    format!(
                        "the {name} does not answer; it is being started again, repeat the call"
                    ),
                ))
            }
        }
    }
}

/// Builds a gRPC response that holds nothing but the failure.
fn failure_response(failure: Failure) -> Response<Body> {
    tonic::Status::from(failure)
        .into_http::<Empty<Bytes>>()
        .map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

#[derive(Debug)]
struct Router {
    controller: Target,
    agent: Target,
}

impl Router {
    async fn route(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        Ok(match route::backend(request.uri().path()) {
            Some(Backend::Controller) => self.controller.forward(request).await,
            Some(Backend::NodeAgent) => self.agent.forward(request).await,
            None => failure_response(Failure::unimplemented(request.uri().path())),
        })
    }
}

/// Routes requests on `listener` to the sockets in `directory` until `stop` resolves. Then ends the
/// connections and grants the RPCs in flight at most `grace`.
///
/// # Errors
/// Returns an error when the listener fails.
pub async fn serve(
    listener: UnixListener,
    directory: &Path,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> io::Result<()> {
    let router = Arc::new(Router {
        controller: Target::new(Backend::Controller, directory),
        agent: Target::new(Backend::NodeAgent, directory),
    });
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The peer closed the connection before the accept.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) if is_exhausted(&e) => {
                    tracing::warn!(error = %e, "a connection waits until others have ended");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                Err(e) => return Err(e),
            },
        };
        connections.spawn(serve_connection(stream, Arc::clone(&router), stopping.subscribe()));
    }
    drop(listener);
    let _ = stopping.send(true);
    let drain = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, drain).await.is_err() {
        tracing::warn!("calls were still running after the grace period; their callers will retry");
    }
    Ok(())
}

/// Returns whether the process or the machine has no descriptor or memory left for a connection
/// (accept(2)).
fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

async fn serve_connection(
    stream: UnixStream,
    router: Arc<Router>,
    mut stopping: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| Arc::clone(&router).route(request));
    let mut connection = pin!(
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
    );
    let mut is_shutting_down = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(e) = ended {
                    tracing::debug!("a connection ended: {e}");
                }
                return;
            }
            _ = stopping.wait_for(|stopping| *stopping), if !is_shutting_down => {
                is_shutting_down = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
