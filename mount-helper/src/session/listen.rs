//! The addresses at which the helper listens.
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use ebs_csi_wire::{VSOCK_PORTS, parse_vsock_number};

/// Every machine (VMADDR_CID_ANY in linux/vm_sockets.h).
pub(crate) const CID_ANY: u32 = u32::MAX;
/// The host's hypervisor (VMADDR_CID_HYPERVISOR), which serves no program.
const CID_HYPERVISOR: u32 = 0;
/// The host (VMADDR_CID_HOST).
pub(crate) const CID_HOST: u32 = 2;
/// Where the helper's socket is in a pod. A helper without a unix socket keeps its records there.
const DEFAULT_SOCKET: &str = "/run/ebs-csi/helper.sock";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Listen {
    Unix(PathBuf),
    /// A vsock port, of this machine's CID or of each that the machine has.
    Vsock {
        cid: Option<u32>,
        port: u32,
    },
}

impl Listen {
    /// Parses an address of the command line. The error is one line for the user.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("--listen {text:?} {why}");
        if let Some(path) = text.strip_prefix("unix://").filter(|p| p.starts_with('/')) {
            return Ok(Self::Unix(path.into()));
        }
        let Some(rest) = text.strip_prefix("vsock://") else {
            return Err(wrong("must be unix:///PATH or vsock://[CID]:PORT"));
        };
        let Some((cid, port)) = rest.split_once(':') else {
            return Err(wrong("must be unix:///PATH or vsock://[CID]:PORT"));
        };
        let Some(port) = parse_vsock_number(port) else {
            return Err(wrong("has a port that is no decimal number"));
        };
        if !VSOCK_PORTS.contains(&port) {
            return Err(wrong("must have a port of 1024 to 4294967294"));
        }
        let cid = match cid {
            "" => None,
            cid => match parse_vsock_number(cid) {
                Some(CID_HYPERVISOR | CID_HOST | CID_ANY) => {
                    return Err(wrong(
                        "must have this machine's CID, 1 for its own programs, or none",
                    ));
                }
                Some(cid) => Some(cid),
                None => return Err(wrong("has a CID that is no decimal number")),
            },
        };
        Ok(Self::Vsock { cid, port })
    }

    /// Returns the path of a unix socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Vsock { .. } => None,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Vsock { cid, port } => {
                f.write_str("vsock://")?;
                if let Some(cid) = cid {
                    write!(f, "{cid}")?;
                }
                write!(f, ":{port}")
            }
        }
    }
}

/// Returns the path beside which the helper keeps its records about disks.
pub(crate) fn records_path(listen: &[Listen]) -> &Path {
    let unix = listen.iter().find_map(Listen::path);
    unix.unwrap_or(Path::new(DEFAULT_SOCKET))
}

/// Parses the CIDs that may connect over vsock.
pub(crate) fn peers(text: &str) -> Result<Vec<u32>, String> {
    let peers: Option<BTreeSet<u32>> = text.split(',').map(parse_vsock_number).collect();
    match peers {
        Some(peers) if !peers.contains(&CID_HYPERVISOR) && !peers.contains(&CID_ANY) => {
            Ok(peers.into_iter().collect())
        }
        _ => Err(format!(
            "--vsock-peers {text:?} must be CIDs with commas between them: 2 for the host, 1 for this machine's own programs"
        )),
    }
}

/// Checks the addresses and what belongs to them together.
pub(crate) fn check(listen: &[Listen], key_file: bool, peers: bool) -> Result<(), String> {
    if listen.is_empty() {
        return Err("--listen unix:///PATH is needed; see --help".to_owned());
    }
    let mut seen = BTreeSet::new();
    let is_new = |one: &Listen| match one {
        Listen::Unix(path) => seen.insert((Some(path.clone()), None)),
        Listen::Vsock { port, .. } => seen.insert((None, Some(*port))),
    };
    if !listen.iter().all(is_new) {
        return Err("--listen is given twice with the same path or vsock port".to_owned());
    }
    match (listen.iter().any(|one| one.path().is_none()), key_file, peers) {
        (true, false, _) => {
            Err("--listen vsock:// needs --vsock-key-file: a CID names a machine and no program"
                .to_owned())
        }
        (false, true, _) => Err("--vsock-key-file needs --listen vsock://".to_owned()),
        (false, _, true) => Err("--vsock-peers needs --listen vsock://".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_shown_again() {
        for (text, want) in [
            ("unix:///run/h.sock", Listen::Unix("/run/h.sock".into())),
            ("vsock://:1024", Listen::Vsock { cid: None, port: 1024 }),
            ("vsock://1:5000", Listen::Vsock { cid: Some(1), port: 5000 }),
            (
                "vsock://4294967294:4294967294",
                Listen::Vsock { cid: Some(4_294_967_294), port: 4_294_967_294 },
            ),
        ] {
            let parsed = Listen::parse(text).expect(text);
            assert_eq!(parsed, want);
            assert!(text.ends_with(&parsed.to_string()), "{parsed}");
        }
    }

    #[test]
    fn invalid_address_gives_single_line_error() {
        for (text, says) in [
            ("", "must be unix"),
            ("/run/h", "must be unix"),
            ("unix://run/h", "must be unix"),
            ("tcp://1:5000", "must be unix"),
            ("vsock://", "must be unix"),
            ("vsock://5000", "must be unix"),
            ("vsock://3:", "a port that is no"),
            ("vsock://:x", "a port that is no"),
            ("vsock://:-1", "a port that is no"),
            ("vsock://:+5000", "a port that is no"),
            ("vsock://: 5000", "a port that is no"),
            ("vsock://:05000", "a port that is no"),
            ("vsock://:4294967296", "a port that is no"),
            ("vsock://:5000:1", "a port that is no"),
            ("vsock://:0", "a port of 1024"),
            ("vsock://:1023", "a port of 1024"),
            ("vsock://:4294967295", "a port of 1024"),
            ("vsock://a:5000", "a CID that is no"),
            ("vsock://-1:5000", "a CID that is no"),
            ("vsock://0:5000", "this machine's CID"),
            ("vsock://2:5000", "this machine's CID"),
            ("vsock://4294967295:5000", "this machine's CID"),
        ] {
            let error = Listen::parse(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn vsock_needs_key_and_different_ports() {
        let all = |texts: &[&str]| -> Vec<Listen> {
            texts.iter().map(|t| Listen::parse(t).expect(t)).collect()
        };
        let (u, v, w) = ("unix:///a", "vsock://:5000", "vsock://1:5001");
        for (given, key, peers, says) in [
            (&[][..], false, false, Some("is needed")),
            (&[u][..], false, false, None),
            (&[u, "unix:///b"][..], false, false, None),
            (&[u, v, w][..], true, true, None),
            (&[v][..], true, false, None),
            (&[v][..], false, false, Some("needs --vsock-key-file")),
            (&[u][..], true, false, Some("needs --listen vsock")),
            (&[u][..], false, true, Some("needs --listen vsock")),
            (&[u, u][..], false, false, Some("twice")),
            (&[v, "vsock://1:5000"][..], true, false, Some("twice")),
        ] {
            let outcome = check(&all(given), key, peers);
            match (outcome, says) {
                (Ok(()), None) => {}
                (Err(error), Some(says)) => assert!(error.contains(says), "{error}"),
                other => panic!("{given:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn peers_are_cids_of_machines() {
        assert_eq!(peers("2"), Ok(vec![2]));
        assert_eq!(peers("7,1,7"), Ok(vec![1, 7]));
        for bad in ["", "0", "2,", "2,0", "-1", "4294967295", "host"] {
            let error = peers(bad).expect_err(bad);
            assert!(error.contains("--vsock-peers"), "{error}");
        }
    }

    #[test]
    fn records_stand_beside_the_first_unix_socket() {
        let vsock = Listen::Vsock { cid: None, port: 5000 };
        let unix = |path: &str| Listen::Unix(path.into());
        assert_eq!(records_path(&[vsock.clone(), unix("/a"), unix("/b")]), Path::new("/a"));
        assert_eq!(records_path(&[vsock]), Path::new(DEFAULT_SOCKET));
    }
}
