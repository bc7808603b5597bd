//! The body of a reply: whole, too short, or slow.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

pub(super) enum ReplyBody {
    Whole(Option<Bytes>),
    /// The available bytes, after which the connection breaks.
    Short {
        bytes: Option<Bytes>,
        /// The time until the break, so that the bytes leave first.
        sleep: Pin<Box<Sleep>>,
    },
    /// The body, one byte at a time.
    Slow {
        rest: Bytes,
        /// The delay between bytes.
        between: Duration,
        /// The time until the next byte.
        sleep: Pin<Box<Sleep>>,
    },
}

/// How long the sent bytes have to leave before the connection breaks.
const FLUSH: Duration = Duration::from_millis(20);

impl ReplyBody {
    /// Creates a body that sends all of `bytes` and then breaks the connection.
    pub(super) fn short(bytes: Bytes) -> Self {
        Self::Short { bytes: Some(bytes), sleep: Box::pin(tokio::time::sleep(FLUSH)) }
    }

    /// Creates a body that sends one byte at once and pauses before each other byte.
    pub(super) fn slow(rest: Bytes, between: Duration) -> Self {
        Self::Slow { rest, between, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Short { bytes, sleep } => {
                if let Some(b) = bytes.take() {
                    return Poll::Ready(Some(Ok(Frame::data(b))));
                }
                std::task::ready!(sleep.as_mut().poll(cx));
                Poll::Ready(Some(Err(io::Error::other("cut short on purpose"))))
            }
            Self::Slow { rest, between, sleep } => {
                if rest.is_empty() {
                    return Poll::Ready(None);
                }
                std::task::ready!(sleep.as_mut().poll(cx));
                sleep.as_mut().reset(tokio::time::Instant::now() + *between);
                Poll::Ready(Some(Ok(Frame::data(rest.split_to(1)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Short { .. } => false,
            Self::Slow { rest, .. } => rest.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Self::Whole(None) => SizeHint::with_exact(0),
            // Unknown, so that hyper accepts the length in the header.
            Self::Short { .. } | Self::Slow { .. } => SizeHint::default(),
        }
    }
}
