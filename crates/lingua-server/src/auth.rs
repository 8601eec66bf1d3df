//! Tokens and their roles.
//!
//! Start at [`Tokens`]. A token is shown once, when it is made; only its SHA-256 is kept. The
//! lookup goes by the hash, so its timing tells an attacker nothing about a token.

use std::collections::HashMap;
use std::fmt;

use sha2::{Digest, Sha256};

/// What the holder of a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Register nodes and report about their jobs.
    Node,
    /// Submit jobs and look at them.
    Client,
    /// May do everything.
    Admin,
}

impl Role {
    /// Reads `node`, `client` or `admin`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Node, Self::Client, Self::Admin].into_iter().find(|role| role.as_str() == name)
    }

    /// The name in configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Client => "client",
            Self::Admin => "admin",
        }
    }

    /// Whether this role includes the needed one.
    pub fn covers(self, needed: Self) -> bool {
        self == needed || self == Self::Admin
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// The 32 bytes of the hash.
    pub fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut hash = [0; 32];
        for (i, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Makes a token of 256 random bits.
pub fn new_token() -> String {
    let bits: [u8; 32] = rand::random();
    let hex: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("lingua_{hex}")
}

/// All known tokens. Without any, every caller may do everything.
#[derive(Debug, Clone, Default)]
pub struct Tokens(HashMap<TokenHash, Role>);

impl Tokens {
    /// Makes the set from hashes and their roles.
    pub fn new(tokens: impl IntoIterator<Item = (TokenHash, Role)>) -> Self {
        Self(tokens.into_iter().collect())
    }

    /// Whether no token is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that the token of an `Authorization` header has the role.
    pub(crate) fn allow(
        &self,
        authorization: Option<&str>,
        needed: Role,
    ) -> Result<(), AccessError> {
        if self.is_empty() {
            return Ok(());
        }
        match self.holder(authorization) {
            None => Err(AccessError::UnknownToken),
            Some((_, role)) if role.covers(needed) => Ok(()),
            Some((_, role)) => Err(AccessError::WrongRole { role, needed }),
        }
    }

    /// The hash and role of the token in an `Authorization` header, if it is known.
    pub(crate) fn holder(&self, authorization: Option<&str>) -> Option<(TokenHash, Role)> {
        let (scheme, token) = authorization?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let hash = TokenHash::of(token.trim());
        self.0.get(&hash).map(|role| (hash, *role))
    }
}

/// Why a caller may not use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("no valid token; send 'Authorization: Bearer TOKEN'")]
    UnknownToken,
    #[error("a token with role {role} may not do this; use one with role {needed} or admin")]
    WrongRole { role: Role, needed: Role },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_allows_its_role_and_admin_allows_all() {
        let (node, admin) = (new_token(), new_token());
        assert_ne!(node, admin);
        let tokens =
            Tokens::new([(TokenHash::of(&node), Role::Node), (TokenHash::of(&admin), Role::Admin)]);
        let bearer = |token: &str| format!("Bearer {token}");
        assert_eq!(tokens.allow(Some(&bearer(&node)), Role::Node), Ok(()));
        assert_eq!(tokens.allow(Some(&bearer(&admin)), Role::Client), Ok(()));
        let denied = AccessError::WrongRole { role: Role::Node, needed: Role::Admin };
        assert_eq!(tokens.allow(Some(&bearer(&node)), Role::Admin), Err(denied));
        for wrong in [None, Some("Bearer "), Some("Bearer guess"), Some(node.as_str())] {
            assert_eq!(tokens.allow(wrong, Role::Node), Err(AccessError::UnknownToken));
        }
        assert_eq!(Tokens::default().allow(None, Role::Admin), Ok(()));
    }

    #[test]
    fn a_hash_reads_back() {
        let hash = TokenHash::of("secret");
        assert_eq!(TokenHash::from_hex(&hash.to_string()), Some(hash));
        assert_eq!(TokenHash::from_hex("zz"), None);
    }
}
