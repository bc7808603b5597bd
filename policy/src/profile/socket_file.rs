//! The files of unix sockets, and who may connect: the rows of `sockets.toml`.

use super::{Profile, named};

/// The user that owns a socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Root, as which the process bound it.
    Root,
    /// Root, or the user as which the process serves.
    RootOrOwn,
}

/// The file of a unix socket at which a process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketRow {
    /// The name of the profile.
    pub profile: &'static str,
    /// The flag with the address.
    pub flag: &'static str,
    /// The name of the file, where the flag has its directory.
    pub file: Option<&'static str>,
    /// The owner of the file.
    pub owner: Owner,
    /// The profile whose group the file has; `None`: a group of the driver, or one of the
    /// process's own.
    pub group: Option<&'static str>,
    /// The permission bits of the file.
    pub mode: u32,
    /// The profiles whose user the other end must have; none: whoever the file lets connect.
    pub peers: &'static [&'static str],
    /// The flag that names the users that the other end must have.
    pub peers_flag: Option<&'static str>,
    /// The reason.
    pub why: &'static str,
}

mod compiled {
    use super::{Owner, SocketRow};
    include!(concat!(env!("OUT_DIR"), "/sockets.rs"));
}

/// Every row.
pub const SOCKETS: &[SocketRow] = compiled::SOCKETS;

/// The mode of a socket without a row: nobody but its owner connects.
const WITHOUT_ROW: u32 = 0o600;

impl SocketRow {
    /// Returns the number of the group that the file must have, if the row names one.
    #[must_use]
    pub fn gid(&self) -> Option<u32> {
        self.group.and_then(named).map(|profile| profile.identity.gid)
    }

    /// Returns whether the other end of a connection may have this user.
    #[must_use]
    pub fn serves(&self, uid: u32) -> bool {
        let mut peers = self.peers.iter().filter_map(|name| named(name));
        self.peers.is_empty() || peers.any(|profile| profile.identity.uid == uid)
    }

    /// Returns the path of the file that a value of the flag names; `None` for an address that is
    /// no unix socket's.
    #[must_use]
    pub fn path(&self, value: &str) -> Option<String> {
        match self.file {
            Some(file) => Some(format!("{}/{file}", value.trim_end_matches('/'))),
            None => value.strip_prefix("unix://").map(str::to_owned),
        }
    }
}

impl Profile {
    /// Returns the rows about the sockets at which the process serves.
    pub fn sockets(&self) -> impl Iterator<Item = &'static SocketRow> {
        SOCKETS.iter().filter(|row| row.profile == self.name)
    }

    /// Returns the row about the socket whose address this flag has.
    #[must_use]
    pub fn socket(&self, flag: &str) -> Option<&'static SocketRow> {
        self.sockets().find(|row| row.flag == flag)
    }

    /// Returns the permission bits of that socket's file.
    #[must_use]
    pub fn socket_mode(&self, flag: &str) -> u32 {
        self.socket(flag).map_or(WITHOUT_ROW, |row| row.mode)
    }
}
