//! What makes the list of EC2 actions from its rows ([`crate::calls`]).

/// The numbers of a request token bucket: the size of a burst, and the sustained calls per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls that a full bucket allows at once.
    pub capacity: f64,
    /// Calls per second by which the bucket refills.
    pub refill: f64,
}

/// The effect of a request that is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The action changes nothing.
    Read,
    /// Two requests have the effect of one.
    Idempotent,
    /// Each request has its own effect.
    Once,
}

/// Makes the closed list of actions from one row for each: what it is called for, its name, its
/// effect, and the documented capacity and refill rate of its bucket.
macro_rules! actions {
    ($($(#[doc = $why:literal])+ $name:ident: $effect:ident, $capacity:literal, $refill:literal;)*) => {
        /// An EC2 action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Action { $($(#[doc = $why])+ $name),* }

        impl Action {
            /// Every action.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];

            /// Returns the action's name, as in the API and in IAM.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// Returns the documented request bucket per account and Region (EC2 API reference,
            /// "Request throttling").
            pub fn documented_rate(self) -> $crate::action::Rate {
                match self {
                    $(Self::$name => {
                        $crate::action::Rate { capacity: $capacity, refill: $refill }
                    })*
                }
            }

            fn effect(self) -> $crate::action::Effect {
                match self { $(Self::$name => $crate::action::Effect::$effect),* }
            }

            /// Returns whether the action changes nothing.
            pub fn is_read(self) -> bool {
                self.effect() == $crate::action::Effect::Read
            }

            /// Returns whether sending the same request twice has the effect of sending it once.
            pub fn is_idempotent(self) -> bool {
                self.effect() != $crate::action::Effect::Once
            }
        }

        impl std::fmt::Display for Action {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use actions;
