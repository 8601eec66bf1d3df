//! Enums whose values have names: one table for the values, their order and their names.

/// Declares an enum whose values have names; see [`NodeState`](crate::NodeState) for an example.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        pub enum $Enum:ident {
            $($(#[$doc:meta])* $Value:ident = $name:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Enum {
            $($(#[$doc])* $Value,)*
        }

        impl $Enum {
            /// Every value, in order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Value),*];

            /// The name on the wire, in metrics and in messages.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }

            /// The value of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == name)
            }
        }

        impl std::str::FromStr for $Enum {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let known = || format!("use one of {}", Self::ALL.map(Self::as_str).join(", "));
                Self::from_name(name).ok_or_else(known)
            }
        }

        impl std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
