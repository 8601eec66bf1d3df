//! How the core's values look in JSON.
//!
//! The core knows nothing of JSON. Fields that hold its values are marked `with = "plain"`,
//! `plain::option` or `plain::list`. Start at [`Plain`]: names and languages are texts, epochs and
//! fences are numbers, states are words.
//!
//! Invariant: what is read is a valid value of the core, or an error that shows what was there.

use std::fmt;
use std::marker::PhantomData;

use lingua_core::job::JobState;
use lingua_core::lang::AUTO;
use lingua_core::{
    Attempt, Epoch, Fence, Health, InstanceId, JobId, Lang, LangPair, NodeId, NodeState, Service,
    ServiceSet, Source, Term,
};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::error::shown;
use crate::node::health_name;

/// How an error about a text that is no job id reads; see [`Text::visit_str`].
pub(crate) const NO_JOB_ID: &str = " is not a job id: ";

/// A value of the core that has a JSON form.
pub(crate) trait Plain: Sized {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error>;
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

pub(crate) fn serialize<T: Plain, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
    value.write(out)
}

pub(crate) fn deserialize<'de, T: Plain, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::read(from)
}

/// A value that may be absent or null.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Item, Plain, Serialize, Serializer};

    pub(crate) fn serialize<T: Plain, S: Serializer>(
        value: &Option<T>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(super::ItemRef).serialize(out)
    }

    pub(crate) fn deserialize<'de, T: Plain, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<Item<T>>::deserialize(from)?.map(|item| item.0))
    }
}

/// A bounded list that may be absent or null.
pub(crate) mod list {
    use super::{Deserializer, Item, Plain, Serializer};

    pub(crate) fn serialize<T: Plain, S: Serializer>(
        values: &Option<Vec<T>>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_seq(values.iter().flatten().map(super::ItemRef))
    }

    pub(crate) fn deserialize<'de, T: Plain, D: Deserializer<'de>, const MAX: usize>(
        from: D,
    ) -> Result<Option<Vec<T>>, D::Error> {
        let items = super::bounded::<Item<T>, D, MAX>(from)?;
        Ok(items.map(|items| items.into_iter().map(|item| item.0).collect()))
    }
}

/// Reads a list that may be absent or null, and stops at the first entry that is too many.
pub(crate) fn bounded<'de, T: Deserialize<'de>, D: Deserializer<'de>, const MAX: usize>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    Ok(Option::<Bounded<T, MAX>>::deserialize(from)?.map(|list| list.0))
}

struct Bounded<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(BoundedVisitor(PhantomData))
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = seq.next_element()? {
            if list.len() == MAX {
                let what = format_args!("the list has more than {MAX} entries; send at most {MAX}");
                return Err(A::Error::custom(what));
            }
            list.push(entry);
        }
        Ok(Bounded(list))
    }
}

struct Item<T>(T);

impl<'de, T: Plain> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

struct ItemRef<'a, T>(&'a T);

impl<T: Plain> Serialize for ItemRef<'_, T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.write(out)
    }
}

/// Reads a text and makes a value of it without keeping the text.
struct Text<T> {
    what: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as text", self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text)
            .map_err(|why| E::custom(format_args!("{} is not {}: {why}", shown(text), self.what)))
    }
}

macro_rules! text {
    ($($Type:ty, $what:literal;)*) => {$(
        impl Plain for $Type {
            fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let parse = |text: &str| text.parse::<$Type>().map_err(|why| why.to_string());
                from.deserialize_str(Text { what: $what, parse })
            }
        }
    )*};
}

text! {
    JobId, "a job id";
    NodeId, "a node id";
    InstanceId, "an instance id";
    Lang, "a language";
    LangPair, "a pool";
}

impl Plain for Source {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(lang) => out.serialize_str(lang.as_str()),
            Self::Auto => out.serialize_str(AUTO),
        }
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text.parse::<Self>().map_err(|why| why.to_string());
        from.deserialize_str(Text { what: "a language or 'auto'", parse })
    }
}

macro_rules! number {
    ($($Type:ident),*) => {$(
        impl Plain for $Type {
            fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_u64(self.0)
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                u64::deserialize(from).map(Self)
            }
        }
    )*};
}

number!(Epoch, Fence, Term);

impl Plain for Attempt {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u32(self.0)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(from)?;
        u32::try_from(number).ok().filter(|&attempt| attempt >= 1).map(Self).ok_or_else(|| {
            D::Error::custom(format_args!("attempt {number} does not exist; they count from 1"))
        })
    }
}

macro_rules! word {
    ($($Type:ty, $all:expr, $name:expr, $what:literal;)*) => {$(
        impl Plain for $Type {
            fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                let name: fn($Type) -> &'static str = $name;
                out.serialize_str(name(*self))
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let parse = |text: &str| {
                    let name: fn($Type) -> &'static str = $name;
                    let found = $all.into_iter().find(|&value| name(value) == text);
                    found.ok_or_else(|| format!("use one of {}", $all.map(name).join(", ")))
                };
                from.deserialize_str(Text { what: $what, parse })
            }
        }
    )*};
}

word! {
    Health, crate::node::HEALTHS, health_name, "a node's health";
    NodeState, NodeState::ALL, NodeState::as_str, "a node's state";
    JobState, JobState::ALL, JobState::as_str, "a job's state";
    Service, Service::ALL, Service::as_str, "a service";
}

impl Plain for ServiceSet {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.iter().map(Service::as_str))
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let services = list::deserialize::<Service, D, { crate::limits::SERVICES_MAX }>(from)?;
        Ok(services.into_iter().flatten().collect())
    }
}
