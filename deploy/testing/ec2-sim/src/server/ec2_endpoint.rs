//! The EC2 and STS endpoint.

use super::{ReplyBody, ServeError, Shared, read, serve, text, whole};
use crate::sim::{Delivery, Reply, Request};
use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// Opens the endpoint and serves it in the background.
pub(super) async fn listen(
    shared: &Arc<Shared>,
    address: SocketAddr,
) -> Result<SocketAddr, ServeError> {
    let socket = |e| ServeError::Socket(format!("--listen {address}"), e);
    let listener = TcpListener::bind(address).await.map_err(socket)?;
    let bound = listener.local_addr().map_err(socket)?;
    // Subscribe here, because an outage may begin before the task first runs.
    let outage = shared.outage.subscribe();
    shared.spawn(accept(Arc::clone(shared), listener, bound, outage));
    Ok(bound)
}

async fn accept(
    shared: Arc<Shared>,
    mut listener: TcpListener,
    address: SocketAddr,
    mut outage: watch::Receiver<(u64, Duration)>,
) {
    loop {
        tokio::select! {
            biased;
            changed = outage.changed() => {
                if changed.is_err() {
                    return;
                }
                let for_how_long = outage.borrow_and_update().1;
                drop(listener);
                tokio::time::sleep(for_how_long).await;
                listener = loop {
                    match TcpListener::bind(address).await {
                        Ok(l) => break l,
                        Err(error) => {
                            tracing::error!(%error, %address, "the endpoint cannot be opened again; it is tried again");
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                };
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // A clone of this loop's receiver: a subscription in the new task would miss an
                    // outage that begins before that task first runs.
                    tokio::spawn(connection(Arc::clone(&shared), stream, outage.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
        }
    }
}

async fn connection(
    shared: Arc<Shared>,
    stream: TcpStream,
    mut outage: watch::Receiver<(u64, Duration)>,
) {
    let _ = stream.set_nodelay(true);
    // A second descriptor of the socket, which sets how the socket closes.
    let Ok(socket) = stream.as_fd().try_clone_to_owned() else { return };
    tokio::select! {
        () = serve(stream, |request| respond(&shared, &socket, request)) => {}
        _ = outage.changed() => {}
    }
}

async fn respond(
    shared: &Shared,
    socket: &OwnedFd,
    request: hyper::Request<Incoming>,
) -> io::Result<Response<ReplyBody>> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        let mut refused = Response::new(whole(Bytes::new()));
        *refused.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return Ok(refused);
    }
    let form = read(body).await?.to_vec();
    let request = Request {
        form,
        authorization: text(&head.headers, header::AUTHORIZATION.as_str()),
        date: Some(text(&head.headers, "x-amz-date").unwrap_or_default()),
    };
    let reply = shared.with_sim(|sim, now| sim.handle(now, &request));
    if reply.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    }
    deliver(socket, reply).await
}

async fn deliver(socket: &OwnedFd, reply: Reply) -> io::Result<Response<ReplyBody>> {
    let lost = || io::Error::other("the reply is lost on purpose");
    let bytes = Bytes::from(reply.body.clone());
    let (length, body) = match reply.delivery {
        Delivery::Normal => (bytes.len(), whole(bytes)),
        Delivery::Hang(hold) => {
            tokio::time::sleep(hold).await;
            return Err(lost());
        }
        Delivery::Close => return Err(lost()),
        Delivery::Reset => {
            // With linger 0, closing the socket resets the connection.
            rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
            return Err(lost());
        }
        Delivery::Short => (bytes.len() + 64, short(bytes)),
        Delivery::Slow { first, between } => {
            tokio::time::sleep(first).await;
            (bytes.len(), slow(bytes, between))
        }
    };
    let mut response = Response::builder()
        .status(reply.status)
        .header(header::CONTENT_TYPE, reply.content_type)
        .header(header::CONTENT_LENGTH, length)
        .header(header::CACHE_CONTROL, "no-cache, no-store")
        .header(header::SERVER, "AmazonEC2")
        .header("x-amzn-requestid", &reply.request_id);
    if let Some(ms) = reply.retry_after_ms {
        response = response.header("x-amz-retry-after", ms);
    }
    response.body(body).map_err(io::Error::other)
}

/// How long the sent bytes have to leave before the connection breaks.
const FLUSH: Duration = Duration::from_millis(20);

/// Returns a body that sends all of `bytes` and then breaks the connection.
fn short(bytes: Bytes) -> ReplyBody {
    paced([Ok(bytes), Err(io::Error::other("cut short on purpose"))], FLUSH)
}

/// Returns a body that sends one byte at once and pauses before each other byte.
fn slow(bytes: Bytes, between: Duration) -> ReplyBody {
    paced((0..bytes.len()).map(move |at| Ok(bytes.slice(at..=at))), between)
}

/// Returns a body of these parts, with a pause after each. Its size is unknown, so that hyper
/// accepts the length in the header.
fn paced<P>(parts: P, pause: Duration) -> ReplyBody
where
    P: IntoIterator<Item = io::Result<Bytes>, IntoIter: Send> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        for part in parts {
            // The client has left.
            if sender.send(part.map(Frame::data)).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    });
    StreamBody::new(ReceiverStream::new(receiver)).boxed_unsync()
}
