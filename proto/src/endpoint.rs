//! The address of a CSI socket: `unix:` or `tcp:`, as in the Go driver's `--endpoint`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Where to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket, by absolute path.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// A text that is not a valid endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointError(String);

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "endpoint {:?} cannot be used; give unix:///path/csi.sock or tcp://127.0.0.1:PORT",
            self.0
        )
    }
}

impl std::error::Error for EndpointError {}

impl std::str::FromStr for Endpoint {
    type Err = EndpointError;

    /// Parses an endpoint. The host and path of a unix address are joined and made absolute:
    /// `unix://tmp/csi.sock` is `/tmp/csi.sock`.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let fail = || EndpointError(text.to_owned());
        let (scheme, rest) = text.split_once(':').ok_or_else(fail)?;
        let rest = rest.trim_start_matches('/');
        if rest.is_empty() {
            return Err(fail());
        }
        match scheme.to_ascii_lowercase().as_str() {
            "unix" => Ok(Self::Unix(PathBuf::from(format!("/{rest}")))),
            "tcp" => Ok(Self::Tcp(rest.parse().map_err(|_| fail())?)),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// A bound socket. Binding is separate from serving, so that a process can bind, confine itself,
/// and then serve.
#[derive(Debug)]
pub enum Listener {
    /// Of a unix endpoint.
    Unix(UnixListener),
    /// Of a TCP endpoint.
    Tcp(std::net::TcpListener),
}

impl Endpoint {
    /// Binds the socket. Replaces a socket file that an earlier process left behind; any other file
    /// there is an error.
    ///
    /// `mode` has the permission bits of a unix socket's file: who may write to it may connect.
    ///
    /// # Errors
    /// As bind(2); `AlreadyExists` when the path is not a socket.
    pub fn bind(&self, mode: u32) -> io::Result<Listener> {
        match self {
            Self::Unix(path) => {
                match std::fs::symlink_metadata(path) {
                    Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
                    Ok(_) => {
                        let why = format!("{} exists and is not a socket", path.display());
                        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
                    }
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix(listener))
            }
            Self::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tcp(listener))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_parse_like_go_driver() {
        let unix = |path: &str| Some(Endpoint::Unix(PathBuf::from(path)));
        let rows = [
            ("unix:///csi/csi.sock", unix("/csi/csi.sock")),
            ("unix:/csi/csi.sock", unix("/csi/csi.sock")),
            ("unix://tmp/csi.sock", unix("/tmp/csi.sock")),
            ("UNIX:///a", unix("/a")),
            ("tcp://127.0.0.1:80", Some(Endpoint::Tcp("127.0.0.1:80".parse().unwrap()))),
            ("tcp://localhost", None),
            ("http://x", None),
            ("/csi/csi.sock", None),
            ("unix://", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse::<Endpoint>().ok(), expected, "{text}");
        }
    }

    #[test]
    fn bind_replaces_stale_socket_not_regular_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let endpoint = Endpoint::Unix(path.clone());
        for mode in [0o600, 0o660] {
            drop(endpoint.bind(mode).unwrap());
            let found = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "data").unwrap();
        assert_eq!(endpoint.bind(0o660).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
