//! The connection to the mount-helper. The frames are the same over every stream, so only this file
//! depends on unix sockets.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::UnixStream;

/// The helper's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
}

/// A connected stream.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text
            .strip_prefix("unix://")
            .filter(|path| path.starts_with('/') && path.len() < 108)
            .ok_or_else(|| {
                format!("{text:?} is not an address; give unix:///path, up to 107 bytes")
            })?;
        Ok(Self::Unix(PathBuf::from(path)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl Address {
    pub(super) async fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
        }
    }
}

impl Stream {
    /// Writes all bytes.
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        use tokio::io::AsyncWriteExt;
        match self {
            Self::Unix(stream) => stream.write_all(bytes).await,
        }
    }

    /// Appends the available bytes to `buffer`; returns 0 at the end of the stream.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        use tokio::io::AsyncReadExt;
        match self {
            Self::Unix(stream) => stream.read_buf(buffer).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absolute_unix_path_is_an_address() {
        assert_eq!(
            "unix:///run/h.sock".parse(),
            Ok(Address::Unix("/run/h.sock".into()))
        );
        for bad in [
            "",
            "/run/h.sock",
            "unix://run/h.sock",
            "vsock://2:1",
            "unix://",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        assert!(
            format!("unix:///{}", "x".repeat(107))
                .parse::<Address>()
                .is_err()
        );
    }
}
