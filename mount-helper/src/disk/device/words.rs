//! How broker and opener write their messages: words with a space between them. A number is
//! decimal, a text or an identifier hexadecimal, so that nothing that a disk holds can be taken for
//! a word of its own.
use ebs_csi_policy::facts::{Content, DeviceNumber, ExtFacts, ExtLevel, XfsFacts};
use ebs_csi_wire::{DeviceName, Features, FsType, Node, Signature, VolumeId};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::str::Split;

/// A value that can be a part of a message.
pub(super) trait Words: Sized {
    /// Appends the words of the value, each with a space before it.
    fn write(&self, to: &mut String);
    /// Reads the value from the next words; returns None when they are not such a value.
    fn read(from: &mut Split<'_, char>) -> Option<Self>;
}

/// Encodes a message.
pub(super) fn encode(message: &impl Words) -> Vec<u8> {
    let mut text = String::new();
    message.write(&mut text);
    text.into_bytes()
}

/// Parses a whole message; returns None for anything else.
pub(super) fn parse<T: Words>(message: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(message).ok()?.strip_prefix(' ')?;
    let mut words = text.split(' ');
    let value = T::read(&mut words)?;
    words.next().is_none().then_some(value)
}

/// Implements [`Words`] by a conversion into a type that has it already, and back.
macro_rules! words_as {
    ($($type:ty as $inner:ty: |$value:ident| $write:expr, |$read_value:ident| $read:expr;)+) => {
        $(impl Words for $type {
            fn write(&self, to: &mut String) {
                let $value = self;
                let inner: $inner = $write;
                inner.write(to);
            }

            fn read(from: &mut Split<'_, char>) -> Option<Self> {
                let $read_value = <$inner>::read(from)?;
                $read
            }
        })+
    };
}

/// Implements [`Words`] for structs, whose fields follow one another, and for enums, whose values
/// begin with a word of their own.
macro_rules! words {
    ($(struct $name:ident { $($field:ident),+ })+) => {
        $(impl crate::disk::device::words::Words for $name {
            fn write(&self, to: &mut String) {
                $(self.$field.write(to);)+
            }

            fn read(from: &mut std::str::Split<'_, char>) -> Option<Self> {
                $(let $field = crate::disk::device::words::Words::read(from)?;)+
                Some(Self { $($field),+ })
            }
        })+
    };
    ($(enum $name:ident {
        $($word:literal => $variant:ident $(($inner:ident))? $({ $field:ident })?,)+
    })+) => {
        $(impl crate::disk::device::words::Words for $name {
            fn write(&self, to: &mut String) {
                match self {
                    $(Self::$variant $(($inner))? $({ $field })? => {
                        to.push(' ');
                        to.push_str($word);
                        $($inner.write(to);)?
                        $($field.write(to);)?
                    })+
                }
            }

            fn read(from: &mut std::str::Split<'_, char>) -> Option<Self> {
                match from.next()? {
                    $($word => {
                        $(let $inner = crate::disk::device::words::Words::read(from)?;)?
                        $(let $field = crate::disk::device::words::Words::read(from)?;)?
                        Some(Self::$variant $(($inner))? $({ $field })?)
                    })+
                    _ => None,
                }
            }
        })+
    };
}

pub(super) use words;

macro_rules! numbers {
    ($($number:ty)+) => {
        $(impl Words for $number {
            fn write(&self, to: &mut String) {
                let _ = write!(to, " {self}");
            }

            fn read(from: &mut Split<'_, char>) -> Option<Self> {
                from.next()?.parse().ok()
            }
        })+
    };
}

numbers! { u32 u64 i32 bool }

/// Bytes, as one word.
struct Bytes(Vec<u8>);

impl Words for Bytes {
    fn write(&self, to: &mut String) {
        to.push(' ');
        for byte in &self.0 {
            let _ = write!(to, "{byte:02x}");
        }
    }

    fn read(from: &mut Split<'_, char>) -> Option<Self> {
        let pairs = from.next()?.as_bytes().chunks(2);
        let digit = |byte: u8| char::from(byte).to_digit(16);
        pairs
            .map(|pair| match *pair {
                [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
                _ => None,
            })
            .collect::<Option<_>>()
            .map(Self)
    }
}

/// The number of the values, and then each of them.
impl<T: Words> Words for Vec<T> {
    fn write(&self, to: &mut String) {
        (self.len() as u64).write(to);
        self.iter().for_each(|one| one.write(to));
    }

    fn read(from: &mut Split<'_, char>) -> Option<Self> {
        (0..u64::read(from)?).map(|_| T::read(from)).collect()
    }
}

/// A value that may be missing, as a yes or no before it.
impl<T: Words> Words for Option<T> {
    fn write(&self, to: &mut String) {
        self.is_some().write(to);
        self.iter().for_each(|value| value.write(to));
    }

    fn read(from: &mut Split<'_, char>) -> Option<Self> {
        if bool::read(from)? { T::read(from).map(Some) } else { Some(None) }
    }
}

words_as! {
    VolumeId as String: |id| id.as_str().to_owned(), |text| Self::parse(&text).ok();
    DeviceName as String: |name| name.as_str().to_owned(), |text| Self::parse(&text).ok();
    String as Bytes: |text| Bytes(text.as_bytes().to_vec()), |bytes| Self::from_utf8(bytes.0).ok();
    [u8; 16] as Bytes: |id| Bytes(id.to_vec()), |bytes| Self::try_from(bytes.0).ok();
    NonZeroU32 as u32: |number| number.get(), |number| Self::new(number);
    DeviceNumber as u64: |number| number.0, |number| Some(Self(number));
    Errno as i32: |errno| errno.raw_os_error(), |number| {
        (1..4096).contains(&number).then(|| Self::from_raw_os_error(number))
    };
    Signature as i32: |signature| signature.to_wire(), |number| Self::from_wire(number).ok();
    FsType as i32: |fs| fs.to_wire(), |number| Self::from_wire(number).ok();
}

words! {
    struct Node { uid, gid, mode }
    struct ExtFacts {
        level, clean, needs_recovery, fast_commit, bytes, block_bytes, group_blocks, uuid,
        continues, outside_journal, default_options, default_words, last_check, mounted
    }
    struct XfsFacts { sound, in_progress, bytes, block_bytes, groups, uuid }
    struct Features { fs, compatible, incompatible, read_only_compatible, block_bytes }
}

words! {
    enum ExtLevel {
        "ext2" => Ext2,
        "ext3" => Ext3,
        "ext4" => Ext4,
    }
    enum Content {
        "blank" => Blank,
        "ext" => Ext(facts),
        "xfs" => Xfs(facts),
        "partition-table" => PartitionTable(signature),
        "foreign" => Foreign(signature),
        "damaged" => Damaged(signature),
        "unknown" => Unknown { at },
    }
}
