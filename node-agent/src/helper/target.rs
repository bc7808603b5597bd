//! The mount-helper that an agent talks to: its address, and the key that both sides prove.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ebs_csi_proto::program::Exit;
use ebs_csi_wire::{Key, KeyFile, VSOCK_PORTS, parse_vsock_number};

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

/// The helper's address, with the key where the address names a machine and no program.
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) address: Address,
    pub(super) key: Option<Arc<Key>>,
}

impl Target {
    /// Checks the values of `--helper` and `--helper-key-file`, and reads the key.
    ///
    /// # Errors
    /// [`Exit`] with the flag, the problem and the next step: status 64 for a wrong command line,
    /// 78 where the machine is not as the command line says.
    pub fn read(address: &str, key_file: Option<&Path>) -> Result<Self, Exit> {
        Self::read_on(address, key_file, || vsock::get_local_cid().ok())
    }

    /// `own` returns this machine's CID; `None` where the kernel does not say.
    fn read_on(
        address: &str,
        key_file: Option<&Path>,
        own: impl Fn() -> Option<u32>,
    ) -> Result<Self, Exit> {
        let misused = |flag: &str, why: &str| Exit::usage(format_args!("{flag}: {why}"));
        let unusable = |flag: &str, why: String| Exit::setting(format_args!("{flag}: {why}"));
        let address: Address = address.parse().map_err(|why: String| misused("--helper", &why))?;
        let key = match (address.port(), key_file) {
            (None, None) => None,
            (None, Some(_)) => {
                let why = "the kernel names the peer of a unix socket; leave the key out";
                return Err(misused("--helper-key-file", why));
            }
            (Some(_), None) => {
                let why = format!("{address} names a machine and no program; give a key file");
                return Err(misused("--helper-key-file", &why));
            }
            (Some(_), Some(file)) => {
                let key = KeyFile::open(file).and_then(KeyFile::read).map_err(|why| {
                    unusable("--helper-key-file", format!("{} {why}", file.display()))
                })?;
                Some(Arc::new(key))
            }
        };
        if let Address::Vsock { cid, .. } = address
            && cid != tokio_vsock::VMADDR_CID_LOCAL
            && Some(cid) == own()
        {
            let why = format!("CID {cid} is this machine; give 1 for a mount-helper on it");
            return Err(unusable("--helper", why));
        }
        Ok(Self { address, key })
    }

    /// Returns the path of the unix socket to which this process connects, if it is one.
    pub fn socket(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) | Address::Hypervisor { socket: path, .. } => Some(path),
            Address::Vsock { .. } => None,
        }
    }

    /// Returns whether this process connects by a socket of AF_VSOCK.
    pub const fn is_vsock(&self) -> bool {
        matches!(self.address, Address::Vsock { .. })
    }
}

/// A target without a key.
impl FromStr for Target {
    type Err = Exit;

    fn from_str(address: &str) -> Result<Self, Exit> {
        Self::read(address, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn unusable_target_names_flag_and_exit_status() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8], mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let good = file("good", &[7; 32], 0o400);
        let open = file("open", &[7; 32], 0o444);
        let missing = directory.path().join("missing");
        for (address, key, exit, says) in [
            ("unix:///run/h.sock", None, 0, ""),
            ("vsock://3:5000", Some(&good), 0, ""),
            ("vsock://1:5000", Some(&good), 0, ""),
            ("hvsock:///run/vm.sock:5000", Some(&good), 0, ""),
            ("unix:///run/h.sock", Some(&good), 64, "leave the key out"),
            ("vsock://3:5000", None, 64, "--helper-key-file"),
            ("hvsock:///run/vm.sock:5000", None, 64, "--helper-key-file"),
            ("vsock://2:5000", Some(&good), 64, "--helper"),
            ("vsock://3:5000", Some(&open), 78, "mode 0444"),
            ("vsock://3:5000", Some(&missing), 78, "cannot be read"),
            ("vsock://9:5000", Some(&good), 78, "CID 9 is this machine"),
        ] {
            // The device of vsock is opened for such an address alone.
            let own = || {
                assert!(address.starts_with("vsock://"), "{address}");
                Some(9)
            };
            match Target::read_on(address, key.map(PathBuf::as_path), own) {
                Ok(_) => assert_eq!(exit, 0, "{address}"),
                Err(error) => {
                    let Exit::Failure { status, .. } = error else { panic!("{error:?}") };
                    assert_eq!(status, exit, "{address}: {error}");
                    assert!(error.to_string().contains(says), "{error}");
                    assert_eq!(error.to_string().lines().count(), 1);
                }
            }
        }
    }
}
