//! How a reply reaches the client, or fails to.

use std::time::Duration;

/// What the transport does with a reply after its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Sends it.
    #[default]
    Normal,
    /// Keeps the connection open for this long without an answer, then closes it.
    Hang(Duration),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Announces more bytes than it sends, then closes.
    Short,
    /// Waits for the first byte, then sends one byte at a time.
    Slow {
        /// Before the first byte.
        first: Duration,
        /// Between bytes.
        between: Duration,
    },
}
