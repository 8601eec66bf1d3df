//! Texts that are borrowed from a message where they can be.
//!
//! serde borrows a `Cow` but not an `Option` of one; [`option`] does.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a text that may be absent or null.
pub(crate) fn option<'de: 'a, 'a, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Cow<'a, str>>, D::Error> {
    Ok(Option::<Text<'a>>::deserialize(from)?.map(|text| text.0))
}
