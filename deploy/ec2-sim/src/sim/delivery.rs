//! How a reply reaches the client, or fails to.

use std::time::Duration;

/// What the transport does with a reply after its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Sends the reply.
    #[default]
    Normal,
    /// Keeps the connection open for this long without a reply, then closes it.
    Hang(Duration),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Announces more bytes than it sends, then breaks the connection.
    Short,
    /// Waits for the first byte, then sends one byte at a time.
    Slow {
        /// The delay before the first byte.
        first: Duration,
        /// The delay between bytes.
        between: Duration,
    },
}
