//! Where the mount-helper listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ebs_csi_wire::{VSOCK_PORTS, parse_vsock_number};

/// The longest path of a unix socket: `sun_path` in unix(7) without its final zero byte.
const LONGEST_PATH: usize = 107;
const FORMS: &str = "give unix:///PATH, vsock://CID:PORT or hvsock:///SOCKET:PORT";

/// The helper's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A port of a virtual machine, over AF_VSOCK.
    Vsock {
        /// The machine.
        cid: u32,
        /// The port.
        port: u32,
    },
    /// A port of a virtual machine, through its hypervisor's unix socket: Firecracker, Cloud
    /// Hypervisor and vhost-device-vsock connect it after a line `CONNECT PORT`.
    Hypervisor {
        /// The hypervisor's socket.
        socket: PathBuf,
        /// The port.
        port: u32,
    },
}

impl Address {
    /// Returns the vsock port; `None` for a unix socket, whose peer the kernel names.
    #[must_use]
    pub const fn port(&self) -> Option<u32> {
        match self {
            Self::Unix(_) => None,
            Self::Vsock { port, .. } | Self::Hypervisor { port, .. } => Some(*port),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?} is not an address{why}; {FORMS}");
        if let Some(path) = text.strip_prefix("unix://") {
            return socket(path)
                .map(Self::Unix)
                .ok_or_else(|| wrong(": the path must be absolute and of at most 107 bytes"));
        }
        let (hypervisor, rest) =
            match (text.strip_prefix("vsock://"), text.strip_prefix("hvsock://")) {
                (Some(rest), _) => (false, rest),
                (_, Some(rest)) => (true, rest),
                _ => return Err(wrong("")),
            };
        let (place, port) = rest.rsplit_once(':').ok_or_else(|| wrong(": it has no port"))?;
        let port = parse_vsock_number(port)
            .filter(|port| VSOCK_PORTS.contains(port))
            .ok_or_else(|| wrong(": the port must be a number from 1024 to 4294967294"))?;
        if hypervisor {
            return match socket(place) {
                Some(socket) => Ok(Self::Hypervisor { socket, port }),
                None => Err(wrong(": the socket's path must be absolute and of at most 107 bytes")),
            };
        }
        match parse_vsock_number(place) {
            Some(tokio_vsock::VMADDR_CID_HYPERVISOR | tokio_vsock::VMADDR_CID_ANY) => {
                Err(wrong(": no program listens at this CID"))
            }
            Some(tokio_vsock::VMADDR_CID_HOST) => {
                Err(wrong(": CID 2 is the host, and the mount-helper is not there"))
            }
            Some(cid) => Ok(Self::Vsock { cid, port }),
            None => Err(wrong(": the CID must be a number")),
        }
    }
}

fn socket(path: &str) -> Option<PathBuf> {
    (path.starts_with('/') && path.len() <= LONGEST_PATH).then(|| path.into())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Vsock { cid, port } => write!(f, "vsock://{cid}:{port}"),
            Self::Hypervisor { socket, port } => {
                write!(f, "hvsock://{}:{port}", socket.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_shown_again() {
        let hypervisor = |socket: &str, port| Address::Hypervisor { socket: socket.into(), port };
        for (text, want) in [
            ("unix:///run/h.sock", Address::Unix("/run/h.sock".into())),
            ("vsock://3:1024", Address::Vsock { cid: 3, port: 1024 }),
            ("vsock://1:5000", Address::Vsock { cid: 1, port: 5000 }),
            (
                "vsock://4294967294:4294967294",
                Address::Vsock { cid: u32::MAX - 1, port: u32::MAX - 1 },
            ),
            ("hvsock:///run/vm.sock:5000", hypervisor("/run/vm.sock", 5000)),
            ("hvsock:///run/a:b:5000", hypervisor("/run/a:b", 5000)),
        ] {
            let parsed: Address = text.parse().expect(text);
            assert_eq!(parsed, want);
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn invalid_address_gives_single_line_error() {
        let long = |scheme: &str, end: &str| format!("{scheme}/{}{end}", "x".repeat(107));
        for (text, says) in [
            ("", "give unix"),
            ("/run/h.sock", "give unix"),
            ("tcp://1:5000", "give unix"),
            ("unix://run/h.sock", "absolute"),
            ("unix://", "absolute"),
            (&long("unix://", ""), "107 bytes"),
            ("vsock://", "no port"),
            ("vsock://3", "no port"),
            ("vsock://3:", "1024 to"),
            ("vsock://3:0", "1024 to"),
            ("vsock://3:1023", "1024 to"),
            ("vsock://3:4294967295", "1024 to"),
            ("vsock://3:4294967296", "1024 to"),
            ("vsock://3:x", "1024 to"),
            ("vsock://3:+5000", "1024 to"),
            ("vsock://3: 5000", "1024 to"),
            ("vsock://3:05000", "1024 to"),
            ("vsock://:5000", "must be a number"),
            ("vsock://x:5000", "must be a number"),
            ("vsock://-1:5000", "must be a number"),
            ("vsock://3:4:5000", "must be a number"),
            ("vsock://0:5000", "no program"),
            ("vsock://4294967295:5000", "no program"),
            ("vsock://2:5000", "is the host"),
            ("hvsock:///run/vm.sock", "no port"),
            ("hvsock:///run/vm.sock:80", "1024 to"),
            ("hvsock://run/vm.sock:5000", "absolute"),
            ("hvsock://:5000", "absolute"),
            (&long("hvsock://", ":5000"), "107 bytes"),
        ] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
