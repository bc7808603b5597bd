//! The address of a CSI socket: `unix:` or `tcp:`, as in the Go driver's `--endpoint`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Where to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket, by absolute path.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    /// Parses an endpoint. The host and path of a unix address are joined and made absolute:
    /// `unix://tmp/csi.sock` is `/tmp/csi.sock`.
    fn from_str(text: &str) -> Result<Self, String> {
        let fail = || {
            format!(
                "endpoint {text:?} cannot be used; give unix:///path/csi.sock or tcp://127.0.0.1:PORT"
            )
        };
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
                remove_socket(path)?;
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

/// Removes the socket at this path. Returns whether there was one.
///
/// # Errors
/// As unlink(2); `AlreadyExists` when the path is another kind of file.
pub fn remove_socket(path: &Path) -> io::Result<bool> {
    let there = is_socket(path)?;
    if there {
        std::fs::remove_file(path)?;
    }
    Ok(there)
}

/// Returns whether there is a socket at this path.
///
/// # Errors
/// As stat(2); `AlreadyExists` when the path is another kind of file.
pub fn is_socket(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} exists and is not a socket", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
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
