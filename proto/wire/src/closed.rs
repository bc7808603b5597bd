//! The macros for closed lists: those of the protocol, and others of which a page has a table.

/// A number that the protocol does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownNumber {
    /// The field, as in `helper.proto`.
    pub field: &'static str,
    /// The number.
    pub number: i32,
}

/// Defines an enum whose values are listed: `ALL` has each value, and `meaning` returns the text of
/// its documentation. With a function after the name, each value has a constant, too.
///
/// ```
/// ebs_csi_wire::listed_enum! {
///     /// A colour of a traffic light.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Light with pub fn label -> &'static str {
///         /// Cars wait.
///         Red = "red",
///         /// Cars drive.
///         Green = "green",
///     }
/// }
/// assert_eq!(Light::ALL, [Light::Red, Light::Green]);
/// assert_eq!((Light::Red.label(), Light::Red.meaning()), ("red", "Cars wait."));
/// ```
#[macro_export]
macro_rules! listed_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident { $($(#[doc = $doc:literal])+ $variant:ident,)+ }
    ) => {
        $(#[$attribute])*
        $visibility enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            /// All values, in the order of the source.
            $visibility const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Returns the documentation of the value.
            $visibility const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident
        with $function_visibility:vis fn $function:ident -> $constant:ty {
            $($(#[doc = $doc:literal])+ $variant:ident = $value:expr,)+
        }
    ) => {
        $crate::listed_enum! {
            $(#[$attribute])*
            $visibility enum $name { $($(#[doc = $doc])+ $variant,)+ }
        }

        impl $name {
            #[doc = concat!("Returns the ", stringify!($function), " of the value.")]
            $function_visibility const fn $function(self) -> $constant {
                match self { $(Self::$variant => $value,)+ }
            }
        }
    };
}

/// Defines an enum that mirrors one of `helper.proto`: decoding is total, and unknown numbers are
/// errors. So is zero, unless the enum has a value for it, as `Origin` and `Source` do.
macro_rules! closed_enum {
    (
        $(#[$attribute:meta])*
        $name:ident mirrors $wire:ident, $field:literal {
            $($(#[$doc:meta])* $variant:ident => $key:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* #[doc = concat!("`", $key, "` in logs.")] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the protocol.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns a short name for logs and metric labels.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $key,)+
                }
            }

            /// Returns the number on the wire.
            pub const fn to_wire(self) -> i32 {
                match self {
                    $(Self::$variant => crate::pb::$wire::$variant as i32,)+
                }
            }

            /// Converts the number on the wire. Fails with [`UnknownNumber`](crate::UnknownNumber)
            /// for a number that this release does not know, and for zero unless the enum has a
            /// value for it.
            pub fn from_wire(number: i32) -> Result<Self, crate::closed::UnknownNumber> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.to_wire() == number)
                    .ok_or(crate::closed::UnknownNumber { field: $field, number })
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Defines a [`closed_enum`] of which each value has a text, the result of the method `$method` and
/// the value's documentation.
macro_rules! described_enum {
    (
        $(#[$attribute:meta])*
        $name:ident mirrors $wire:ident, $field:literal;
        $(#[$method_attribute:meta])*
        $method:ident {
            $($variant:ident => $key:literal, $text:literal;)+
        }
    ) => {
        crate::closed::closed_enum! {
            $(#[$attribute])*
            $name mirrors $wire, $field {
                $(#[doc = $text] $variant => $key,)+
            }
        }

        impl $name {
            $(#[$method_attribute])*
            pub const fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

pub(crate) use {closed_enum, described_enum};

#[cfg(test)]
mod tests {
    use crate::{
        ContentState, FsType, Holder, OperationKind, Origin, Refusal, Signature, Source, Step, pb,
    };

    /// Every number that the generated enum knows must be known to the checked one, except zero.
    macro_rules! mirrors {
        ($checked:ident, $wire:ident) => {
            for number in -2..1000 {
                let known = pb::$wire::try_from(number).is_ok() && number != 0;
                assert_eq!(
                    $checked::from_wire(number).is_ok(),
                    known,
                    concat!(stringify!($checked), " {}"),
                    number
                );
            }
            for value in $checked::ALL {
                assert_eq!($checked::from_wire(value.to_wire()), Ok(*value));
            }
        };
    }

    #[test]
    fn every_rust_enum_mirrors_its_protobuf_enum() {
        mirrors!(FsType, FsType);
        mirrors!(Refusal, Refusal);
        mirrors!(Step, Step);
        mirrors!(Signature, Signature);
        mirrors!(ContentState, ContentState);
        mirrors!(OperationKind, OperationKind);
        mirrors!(Holder, Holder);
        // Zero is a value here: a caller of the previous release sends nothing else.
        for number in -2..1000 {
            assert_eq!(Origin::from_wire(number).is_ok(), pb::Origin::try_from(number).is_ok());
            assert_eq!(Source::from_wire(number).is_ok(), pb::Source::try_from(number).is_ok());
        }
    }
}
