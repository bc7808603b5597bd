//! What was read of processes as values that can be written to a file and read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::{BlockNodes, NodeOwner};

use super::open_files::{FileAccess, OpenFile, OpenFileKind, Socket};
use super::seen::{Seen, SocketOwner};
use super::{Process, Thread};
use ebs_csi_document::Value;

/// A value that a file can hold.
pub(crate) trait Kept: Sized {
    /// Returns the value for the file.
    fn keep(&self) -> Value;

    /// Returns the value of a file; `None` for a file of another form.
    fn back(value: &Value) -> Option<Self>;
}

/// Keeps all fields of a structure, by their names.
macro_rules! kept_fields {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {$(
        impl $crate::process::Kept for $name {
            fn keep(&self) -> ::ebs_csi_document::Value {
                let fields = [$((stringify!($field).to_owned(), $crate::process::Kept::keep(&self.$field))),+];
                ::ebs_csi_document::Value::Table(fields.into())
            }

            fn back(value: &::ebs_csi_document::Value) -> Option<Self> {
                let ::ebs_csi_document::Value::Table(table) = value else { return None };
                Some(Self { $($field: $crate::process::Kept::back(table.get(stringify!($field))?)?),+ })
            }
        }
    )+};
}

pub(crate) use kept_fields;

kept_fields! {
    Process {
        pid, parent, program, is_replaced, arguments, arguments_are_cut, variables,
        environment_is_cut, started, limits, status, threads, disks, named_paths, open,
        filters_unseen, seen,
    }
    Thread { number, status, filters }
    Status {
        name, ended, own_number, parent, uids, gids, groups, threads, inheritable, permitted,
        effective, bounding, ambient, no_new_privs, seccomp, seccomp_filters,
    }
    OpenFile { descriptor, path, kind }
    FileAccess { read, write, owner, is_nameless }
    NodeOwner { uid, gid, mode }
    Socket { protocol, port, listens, peer, unseen }
    BlockNodes { nodes }
    Seen { namespaces, of_node, socket_files, mounts, digest, has_ended }
    SocketOwner { is_socket, uid, gid, mode }
}

macro_rules! kept_numbers {
    ($($name:ident)+) => {$(
        impl Kept for $name {
            fn keep(&self) -> Value {
                Value::Number(u64::from(*self))
            }

            fn back(value: &Value) -> Option<Self> {
                if let Value::Number(number) = value { (*number).try_into().ok() } else { None }
            }
        }
    )+};
}

kept_numbers! { u8 u16 u32 u64 }

impl Kept for bool {
    fn keep(&self) -> Value {
        Value::Switch(*self)
    }

    fn back(value: &Value) -> Option<Self> {
        if let Value::Switch(switch) = value { Some(*switch) } else { None }
    }
}

impl Kept for String {
    fn keep(&self) -> Value {
        Value::Text(self.clone())
    }

    fn back(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl<T: Kept> Kept for Vec<T> {
    fn keep(&self) -> Value {
        Value::List(self.iter().map(T::keep).collect())
    }

    fn back(value: &Value) -> Option<Self> {
        let Value::List(list) = value else { return None };
        list.iter().map(T::back).collect()
    }
}

impl<T: Kept> Kept for Option<T> {
    fn keep(&self) -> Value {
        Value::List(self.iter().map(T::keep).collect())
    }

    fn back(value: &Value) -> Option<Self> {
        let mut all = Vec::<T>::back(value)?;
        if all.len() > 1 { None } else { Some(all.pop()) }
    }
}

impl Kept for [u32; 4] {
    fn keep(&self) -> Value {
        self.to_vec().keep()
    }

    fn back(value: &Value) -> Option<Self> {
        Vec::back(value)?.try_into().ok()
    }
}

impl<A: Kept, B: Kept> Kept for (A, B) {
    fn keep(&self) -> Value {
        Value::List(vec![self.0.keep(), self.1.keep()])
    }

    fn back(value: &Value) -> Option<Self> {
        let Value::List(list) = value else { return None };
        let [first, second] = list.as_slice() else { return None };
        Some((A::back(first)?, B::back(second)?))
    }
}

impl<T: Kept, E: Kept> Kept for Result<T, E> {
    fn keep(&self) -> Value {
        let (name, value) = match self {
            Ok(value) => ("read", value.keep()),
            Err(error) => ("unread", error.keep()),
        };
        Value::Table([(name.to_owned(), value)].into())
    }

    fn back(value: &Value) -> Option<Self> {
        let Value::Table(table) = value else { return None };
        match table.iter().next()? {
            (name, value) if name == "read" => T::back(value).map(Ok),
            (name, error) if name == "unread" => E::back(error).map(Err),
            _ => None,
        }
    }
}

impl Kept for BTreeMap<String, BTreeSet<String>> {
    fn keep(&self) -> Value {
        let names = |all: &BTreeSet<String>| Vec::from_iter(all.iter().cloned()).keep();
        Value::Table(self.iter().map(|(key, all)| (key.clone(), names(all))).collect())
    }

    fn back(value: &Value) -> Option<Self> {
        let Value::Table(table) = value else { return None };
        let names = |value: &Value| Some(Vec::<String>::back(value)?.into_iter().collect());
        table.iter().map(|(key, value)| Some((key.clone(), names(value)?))).collect()
    }
}

/// A filter, in hexadecimal digits.
impl Kept for Arc<[u8]> {
    fn keep(&self) -> Value {
        Value::Text(self.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn back(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        let digits = text.as_bytes().chunks(2);
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        digits.map(byte).collect::<Option<Vec<u8>>>().map(Self::from)
    }
}

impl Kept for OpenFileKind {
    fn keep(&self) -> Value {
        let (name, value) = match self {
            Self::File(access) => ("file", access.keep()),
            Self::Disk => ("disk", true.keep()),
            Self::Null => ("null", true.keep()),
            Self::OtherDevice(access) => ("device", access.keep()),
            Self::Socket(socket) => ("socket", socket.keep()),
        };
        Value::Table([(name.to_owned(), value)].into())
    }

    fn back(value: &Value) -> Option<Self> {
        let Value::Table(table) = value else { return None };
        let (name, value) = table.iter().next()?;
        match name.as_str() {
            "file" => FileAccess::back(value).map(Self::File),
            "disk" => Some(Self::Disk),
            "null" => Some(Self::Null),
            "device" => FileAccess::back(value).map(Self::OtherDevice),
            "socket" => Socket::back(value).map(Self::Socket),
            _ => None,
        }
    }
}
