//! A reply's body: whole, too short, or slow.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// The body of a reply.
pub(super) enum ReplyBody {
    /// All at once.
    Whole(Option<Bytes>),
    /// All that there is, and then the connection breaks.
    Short(Option<Bytes>),
    /// One byte at a time.
    Slow {
        /// What is left.
        rest: Bytes,
        /// Between bytes.
        between: Duration,
        /// Until the next byte.
        sleep: Pin<Box<Sleep>>,
    },
}

impl ReplyBody {
    /// One byte now, and the others with a pause before each.
    pub(super) fn slow(rest: Bytes, between: Duration) -> Self {
        Self::Slow {
            rest,
            between,
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
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
            Self::Short(bytes) => Poll::Ready(Some(match bytes.take() {
                Some(b) => Ok(Frame::data(b)),
                None => Err(io::Error::other("cut short on purpose")),
            })),
            Self::Slow {
                rest,
                between,
                sleep,
            } => {
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
            Self::Short(_) => false,
            Self::Slow { rest, .. } => rest.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Self::Whole(None) => SizeHint::with_exact(0),
            // Unknown, so that the length that the header claims is taken for granted.
            Self::Short(_) | Self::Slow { .. } => SizeHint::default(),
        }
    }
}
