//! One description of each message of the protocol, for both directions.

use std::num::{NonZeroU32, NonZeroU64};

use crate::malformed::{Malformed, required};
use crate::path::PathRule;
use crate::{DeviceName, KubeletPath, VolumeId};

/// A message, or a choice of several, in its checked form.
pub(crate) trait Message: Sized {
    /// The generated type.
    type Pb;
    /// The fields with a path, and where each of them may lead.
    const PATHS: &'static [PathRule] = &[];

    /// Checks what another process sent.
    fn read(wire: Self::Pb) -> Result<Self, Malformed>;

    fn write(&self) -> Self::Pb;

    /// Checks a list of these messages, which `field` holds.
    fn check_list(_list: &[Self], _field: &'static str) -> Result<(), Malformed> {
        Ok(())
    }

    /// Returns the volume that the message names.
    fn volume(&self) -> Option<&VolumeId> {
        None
    }

    /// Returns the paths, in the order of [`Message::PATHS`].
    fn paths(&self) -> Vec<&KubeletPath> {
        Vec::new()
    }
}

/// A field of a message in its checked form. Paths are not fields of this kind: [`message`] says
/// where each path may lead.
pub(crate) trait Field: Sized {
    /// The generated type.
    type Pb;

    /// Checks what another process sent as `field`.
    fn read(wire: Self::Pb, field: &'static str) -> Result<Self, Malformed>;

    fn write(&self) -> Self::Pb;

    /// Returns the volume that the field names.
    fn volume(&self) -> Option<&VolumeId> {
        None
    }
}

impl<T: Message> Field for T {
    type Pb = Option<T::Pb>;

    fn read(wire: Option<T::Pb>, field: &'static str) -> Result<Self, Malformed> {
        T::read(required(wire, field)?)
    }

    fn write(&self) -> Option<T::Pb> {
        Some(self.write())
    }

    fn volume(&self) -> Option<&VolumeId> {
        self.volume()
    }
}

impl<T: Message> Field for Vec<T> {
    type Pb = Vec<T::Pb>;

    fn read(wire: Vec<T::Pb>, field: &'static str) -> Result<Self, Malformed> {
        // The frame's size limits their number.
        let list = wire.into_iter().map(T::read).collect::<Result<Vec<_>, _>>()?;
        T::check_list(&list, field)?;
        Ok(list)
    }

    fn write(&self) -> Vec<T::Pb> {
        self.iter().map(T::write).collect()
    }
}

impl Field for VolumeId {
    type Pb = String;

    fn read(wire: String, _: &'static str) -> Result<Self, Malformed> {
        Ok(Self::parse(&wire)?)
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn volume(&self) -> Option<&VolumeId> {
        Some(self)
    }
}

/// Types whose values on the wire, of type `$pb`, are read and written by expressions.
macro_rules! fields {
    ($($type:ty, $pb:ty: |$wire:pat_param| $read:expr, |$value:pat_param| $write:expr;)+) => {
        $(impl Field for $type {
            type Pb = $pb;

            fn read($wire: $pb, _: &'static str) -> Result<Self, Malformed> {
                Ok($read)
            }

            fn write(&self) -> $pb {
                let $value = self;
                $write
            }
        })+
    };
}

fields! {
    bool, bool: |wire| wire, |value| *value;
    u32, u32: |wire| wire, |value| *value;
    u64, u64: |wire| wire, |value| *value;
    Option<NonZeroU32>, u32: |wire| NonZeroU32::new(wire), |value| value.map_or(0, NonZeroU32::get);
    Option<NonZeroU64>, u64: |wire| NonZeroU64::new(wire), |value| value.map_or(0, NonZeroU64::get);
    Option<DeviceName>, String:
        |wire| if wire.is_empty() { None } else { Some(DeviceName::parse(&wire)?) },
        |value| value.as_ref().map(ToString::to_string).unwrap_or_default();
}

/// Closed lists that are fields of messages.
macro_rules! closed_fields {
    ($($name:ident),+) => {
        $(impl crate::codec::Field for $name {
            type Pb = i32;

            fn read(wire: i32, _: &'static str) -> Result<Self, crate::Malformed> {
                Ok(Self::from_wire(wire)?)
            }

            fn write(&self) -> i32 {
                self.to_wire()
            }
        })+
    };
}

/// Defines a message with its checked fields, `name: type = name on the wire`. A path has no type:
/// `name @ Change [uses] = name on the wire` is one where the operation attaches or removes
/// something, `@ Look [uses]` another one, and the policy allows it only at places for one of the
/// uses.
macro_rules! message {
    (
        $(#[$attribute:meta])*
        $name:ident $(, checked by $check:path)? {
            $(
                $(#[$doc:meta])*
                $field:ident $(@ $use:ident [$($place:ident),*])? $(: $type:ty)? = $wire:ident,
            )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: crate::codec::field!(type $(@ $use)? $($type)?),)+
        }

        impl crate::codec::Message for $name {
            type Pb = crate::pb::$name;
            const PATHS: &'static [crate::path::PathRule] = &[
                $($(crate::path::PathRule {
                    field: stringify!($wire),
                    changed: crate::codec::field!(changed $use),
                    uses: &[$(crate::path::PlaceFor::$place),*],
                },)?)+
            ];

            fn read(wire: Self::Pb) -> Result<Self, crate::Malformed> {
                let message = Self {
                    $($field: crate::codec::field!(read wire.$wire, stringify!($wire) $(, $type)?),)+
                };
                $($check(&message)?;)?
                Ok(message)
            }

            fn write(&self) -> Self::Pb {
                crate::pb::$name { $($wire: crate::codec::field!(write self.$field $(, $type)?),)+ }
            }

            fn volume(&self) -> Option<&crate::VolumeId> {
                [$(crate::codec::field!(volume self.$field $(, $type)?)),+].into_iter().flatten().next()
            }

            fn paths(&self) -> Vec<&crate::KubeletPath> {
                vec![$($(crate::codec::field!(path $use self.$field),)?)+]
            }
        }
    };
}

/// One field of a [`message`].
macro_rules! field {
    (type @ $use:ident) => {
        crate::KubeletPath
    };
    (type $type:ty) => {
        $type
    };
    (changed Change) => {
        true
    };
    (changed Look) => {
        false
    };
    (path $use:ident $value:expr) => {
        &$value
    };
    (read $wire:expr, $name:expr) => {
        crate::KubeletPath::parse(&$wire)?
    };
    (read $wire:expr, $name:expr, $type:ty) => {
        <$type as crate::codec::Field>::read($wire, $name)?
    };
    (write $value:expr) => {
        $value.to_string()
    };
    (write $value:expr, $type:ty) => {
        <$type as crate::codec::Field>::write(&$value)
    };
    (volume $value:expr) => {
        None
    };
    (volume $value:expr, $type:ty) => {
        <$type as crate::codec::Field>::volume(&$value)
    };
}

/// Messages whose fields have no other type on the wire, with a check of their bounds.
macro_rules! same_on_wire {
    ($($name:ident $(checked by $check:path)?,)+) => {
        $(impl crate::codec::Message for $name {
            type Pb = Self;

            fn read(wire: Self) -> Result<Self, crate::Malformed> {
                $($check(&wire)?;)?
                Ok(wire)
            }

            fn write(&self) -> Self {
                self.clone()
            }
        })+
    };
}

/// Defines a closed choice of messages that mirrors a `oneof` of `helper.proto`.
macro_rules! one_of {
    (
        $(#[$attribute:meta])*
        $name:ident mirrors $module:ident::$wire:ident {
            $($(#[$doc:meta])* $variant:ident,)+
            $(; $(#[$unit_doc:meta])* $unit:ident,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant($variant),)+
            $($(#[$unit_doc])* $unit,)?
        }

        impl crate::codec::Message for $name {
            type Pb = crate::pb::$module::$wire;

            fn read(wire: Self::Pb) -> Result<Self, crate::Malformed> {
                match wire {
                    $(Self::Pb::$variant(message) => {
                        crate::codec::Message::read(message).map(Self::$variant)
                    })+
                    $(Self::Pb::$unit(_) => Ok(Self::$unit),)?
                }
            }

            fn write(&self) -> Self::Pb {
                match self {
                    $(Self::$variant(message) => {
                        Self::Pb::$variant(crate::codec::Message::write(message))
                    })+
                    $(Self::$unit => Self::Pb::$unit(crate::pb::$unit {}),)?
                }
            }

            fn volume(&self) -> Option<&crate::VolumeId> {
                match self {
                    $(Self::$variant(message) => crate::codec::Message::volume(message),)+
                    $(Self::$unit => None,)?
                }
            }

            fn paths(&self) -> Vec<&crate::KubeletPath> {
                match self {
                    $(Self::$variant(message) => crate::codec::Message::paths(message),)+
                    $(Self::$unit => Vec::new(),)?
                }
            }
        }

        $(impl From<$variant> for $name {
            fn from(message: $variant) -> Self {
                Self::$variant(message)
            }
        }

        impl TryFrom<$name> for $variant {
            type Error = ();

            fn try_from(choice: $name) -> Result<Self, ()> {
                match choice {
                    $name::$variant(message) => Ok(message),
                    _ => Err(()),
                }
            }
        })+
    };
}

pub(crate) use {closed_fields, field, message, one_of, same_on_wire};
