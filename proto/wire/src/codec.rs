//! One description of each message of the protocol, for both directions.

use std::num::{NonZeroU32, NonZeroU64};

use crate::path::PathRule;
use crate::{AttachedAt, DeviceName, KubeletPath, Malformed, VolumeId};

/// A message or a field of one, in its checked form.
pub(crate) trait Wire: Sized {
    /// The generated type.
    type Pb;
    /// The fields with a path, and where each of them may lead.
    const PATHS: &'static [PathRule] = &[];

    /// Checks what another process sent.
    fn read(wire: Self::Pb) -> Result<Self, Malformed>;

    fn write(&self) -> Self::Pb;

    /// Returns the paths, in the order of [`Wire::PATHS`].
    fn paths(&self) -> Vec<&KubeletPath> {
        Vec::new()
    }
}

impl<T: Wire> Wire for Vec<T> {
    type Pb = Vec<T::Pb>;

    // The frame's size limits their number.
    fn read(wire: Self::Pb) -> Result<Self, Malformed> {
        wire.into_iter().map(T::read).collect()
    }

    fn write(&self) -> Self::Pb {
        self.iter().map(T::write).collect()
    }
}

/// Types whose values on the wire, of type `$pb`, are read and written by expressions.
macro_rules! values {
    ($($type:ty, $pb:ty: |$wire:pat_param| $read:expr, |$value:pat_param| $write:expr;)+) => {
        $(impl crate::codec::Wire for $type {
            type Pb = $pb;

            fn read($wire: $pb) -> Result<Self, crate::Malformed> {
                Ok($read)
            }

            fn write(&self) -> $pb {
                let $value = self;
                $write
            }
        })+
    };
}

values! {
    bool, bool: |wire| wire, |value| *value;
    u32, u32: |wire| wire, |value| *value;
    u64, u64: |wire| wire, |value| *value;
    Option<NonZeroU32>, u32: |wire| NonZeroU32::new(wire), |value| value.map_or(0, NonZeroU32::get);
    Option<NonZeroU64>, u64: |wire| NonZeroU64::new(wire), |value| value.map_or(0, NonZeroU64::get);
    VolumeId, String: |wire| Self::parse(&wire)?, |value| value.to_string();
    AttachedAt, String: |wire| Self::parse(&wire)?, |value| value.to_string();
    Option<AttachedAt>, String:
        |wire| if wire.is_empty() { None } else { Some(AttachedAt::parse(&wire)?) },
        |value| value.as_ref().map(ToString::to_string).unwrap_or_default();
    Option<DeviceName>, String:
        |wire| if wire.is_empty() { None } else { Some(DeviceName::parse(&wire)?) },
        |value| value.as_ref().map(ToString::to_string).unwrap_or_default();
}

/// Defines a message of `helper.proto` with its checked fields, `name: type = name on the wire`. A
/// path has no type: `name @ Change [uses] = name on the wire` is one where the operation attaches
/// or removes something, `@ Look [uses]` another one, and the policy allows it only at places for
/// one of the uses.
macro_rules! message {
    (
        $(#[$attribute:meta])*
        $name:ident $(, checked by ($check:expr))? {
            $(
                $(#[$doc:meta])*
                $field:ident $(@ $use:ident [$($place:ident),*])? $(: $type:ty)?
                    = $wire:ident $(or missing $missing:literal)?,
            )+
        }
    ) => {
        $(#[$attribute])*
        #[doc = concat!("The message `", stringify!($name), "` of `helper.proto`.")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $(
                $(#[$doc])*
                #[doc = concat!("The field `", stringify!($wire), "`.")]
                pub $field: crate::codec::field!(type $(@ $use)? $($type)?),
            )+
        }

        impl crate::codec::Wire for $name {
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
                    $($field: crate::codec::field!(read wire.$wire $(, $type)? $(, $missing)?),)+
                };
                $($check(&message)?;)?
                Ok(message)
            }

            fn write(&self) -> Self::Pb {
                crate::pb::$name {
                    $($wire: crate::codec::field!(write self.$field $(, $type)? $(, $missing)?),)+
                }
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
    (read $wire:expr) => {
        crate::KubeletPath::parse(&$wire)?
    };
    (read $wire:expr, $type:ty) => {
        <$type as crate::codec::Wire>::read($wire)?
    };
    (read $wire:expr, $type:ty, $missing:literal) => {
        <$type as crate::codec::Wire>::read(crate::malformed::required($wire, $missing)?)?
    };
    (write $value:expr) => {
        $value.to_string()
    };
    (write $value:expr, $type:ty) => {
        $value.write()
    };
    (write $value:expr, $type:ty, $missing:literal) => {
        Some($value.write())
    };
}

/// Messages whose fields have no other type on the wire, with a check of their bounds.
macro_rules! same_on_wire {
    ($($name:ident $(checked by $check:path)?,)+) => {
        $(impl crate::codec::Wire for $name {
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

        impl crate::codec::Wire for $name {
            type Pb = crate::pb::$module::$wire;

            fn read(wire: Self::Pb) -> Result<Self, crate::Malformed> {
                match wire {
                    $(Self::Pb::$variant(message) => Wire::read(message).map(Self::$variant),)+
                    $(Self::Pb::$unit(_) => Ok(Self::$unit),)?
                }
            }

            fn write(&self) -> Self::Pb {
                match self {
                    $(Self::$variant(message) => Self::Pb::$variant(message.write()),)+
                    $(Self::$unit => Self::Pb::$unit(crate::pb::$unit {}),)?
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
                if let $name::$variant(message) = choice { Ok(message) } else { Err(()) }
            }
        })+
    };
}

pub(crate) use {field, message, one_of, same_on_wire, values};
