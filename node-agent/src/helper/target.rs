//! The mount-helper that an agent talks to: its address, and the key that both sides prove.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ebs_csi_proto::program::Exit;
use ebs_csi_wire::{Key, KeyFile};

use super::Address;

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
        Self::read_on(address, key_file, own_cid)
    }

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
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) | Address::Hypervisor { socket: path, .. } => Some(path),
            Address::Vsock { .. } => None,
        }
    }

    /// Returns whether this process connects by a socket of AF_VSOCK.
    #[must_use]
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

/// Returns this machine's CID; `None` where the kernel does not say.
fn own_cid() -> Option<u32> {
    vsock::get_local_cid().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
            match Target::read_on(address, key.map(std::path::PathBuf::as_path), own) {
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
