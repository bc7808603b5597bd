//! One macro for enums whose values have names, as settings on a command line.

/// Defines an enum with a name for each value.
#[macro_export]
macro_rules! named_values {
    (
        $(#[$attribute:meta])*
        $vis:vis $name:ident { $($(#[$doc:meta])* $value:ident => $text:literal,)+ }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $($(#[$doc])* $value,)+
        }

        impl $name {
            /// All values.
            $vis const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// Returns the value's name.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            /// Parses the name.
            $vis fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }
    };
}
