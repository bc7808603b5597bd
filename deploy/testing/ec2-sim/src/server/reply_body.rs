//! The body of a reply: whole, too short, or slow.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

pub(super) type ReplyBody = UnsyncBoxBody<Bytes, io::Error>;

/// How long the sent bytes have to leave before the connection breaks.
const FLUSH: Duration = Duration::from_millis(20);

pub(super) fn whole(bytes: impl Into<Bytes>) -> ReplyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body that sends all of `bytes` and then breaks the connection.
pub(super) fn short(bytes: Bytes) -> ReplyBody {
    paced([Ok(bytes), Err(io::Error::other("cut short on purpose"))], FLUSH)
}

/// Returns a body that sends one byte at once and pauses before each other byte.
pub(super) fn slow(bytes: Bytes, between: Duration) -> ReplyBody {
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
