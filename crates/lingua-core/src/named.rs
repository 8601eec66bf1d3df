//! Declarations that say everything in one place: enums whose values have names
//! ([`named_enum`](crate::named_enum)), options with their defaults
//! ([`with_defaults`](crate::with_defaults)).

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

/// Declares a struct of options: each field with its type, and the value that it has by default.
#[macro_export]
macro_rules! with_defaults {
    (
        $(#[$attribute:meta])*
        pub struct $Struct:ident {
            $($(#[$doc:meta])* pub $field:ident: $Type:ty = $default:expr,)*
        }
    ) => {
        $(#[$attribute])*
        pub struct $Struct {
            $($(#[$doc])* pub $field: $Type,)*
        }

        impl Default for $Struct {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
