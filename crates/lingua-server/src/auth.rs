//! Tokens: their roles, and to whom they belong.
//!
//! Start at `Tokens::identify`; `shared.rs` replaces them while the server runs. A token is
//! shown once, when it is made; only its SHA-256 is kept. The lookup goes by the hash, so its
//! timing tells an attacker nothing about a token.

mod grant;
mod shared;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, header};
use lingua_core::{NodeId, Profile, Tenant, TokenName, UsageLimits, named_enum};
use lingua_engine::events::EngineEvent;
use lingua_engine::request::JobStatus;
use lingua_engine::usage_limit::LimitedToken;
use sha2::{Digest, Sha256};

use grant::GrantKeys;

pub(crate) use grant::VerifiedGrant;
pub use grant::{
    GRANT_SECONDS_MAX, GrantAbilities, GrantClaims, GrantKey, GrantKeyError, GrantRooms, sign_grant,
};
pub use shared::SharedTokens;

/// The wall time. Unlike other times, people and other machines set when a token expires.
#[allow(clippy::disallowed_methods, reason = "what others sign and write names a wall time")]
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

named_enum! {
    /// What the holder of a token may do.
    pub enum Role {
        /// Register nodes and report about their jobs.
        Node = "node",
        /// Submit jobs and look at them.
        Client = "client",
        /// Look at everything, change nothing.
        Viewer = "viewer",
        /// May do everything.
        Admin = "admin",
    }
}

named_enum! {
    /// What the routes of one section of the route table are for.
    pub enum Access {
        /// Being a node.
        Node = "node",
        /// Having jobs done.
        Client = "client",
        /// Having a session; what a grant is good for.
        Session = "session",
        /// Asking who one is.
        Any = "any",
        /// Looking at jobs and pools.
        Read = "read",
        /// Looking at the whole fleet.
        Fleet = "fleet",
        /// Changing the fleet.
        Admin = "admin",
    }
}

impl Access {
    /// The roles that have it.
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Node => &[Role::Node, Role::Admin],
            Self::Client | Self::Session => &[Role::Client, Role::Admin],
            Self::Any => &[Role::Node, Role::Client, Role::Viewer, Role::Admin],
            Self::Read => &[Role::Client, Role::Viewer, Role::Admin],
            Self::Fleet => &[Role::Viewer, Role::Admin],
            Self::Admin => &[Role::Admin],
        }
    }
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token.
    pub fn of(token: &str) -> Self {
        Self::of_bytes(&[token.as_bytes()])
    }

    /// Hashes what the parts are together.
    fn of_bytes(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update(part));
        Self(hash.finalize().into())
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

/// What a token allows, and to whom it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownToken {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// The tenant whose jobs, sessions and keys its holder has; `None` if the token names none.
    pub tenant: Option<Tenant>,
    /// What its holder may do.
    pub role: Role,
    /// How much its holder may use; its tenant's limits hold as well.
    pub limits: UsageLimits,
    /// Which ids nodes may register with it, with `*` at the end for any rest; empty: any.
    pub node_ids: Vec<String>,
    /// Most node ids that belong to it at a time.
    pub nodes_max: Option<usize>,
    /// The wall time from which it is refused.
    pub expires_ms: Option<u64>,
}

impl KnownToken {
    /// Whether this is the same caller with other limits.
    fn is_same(&self, other: &Self) -> bool {
        (&self.name, self.role, self.tenant) == (&other.name, other.role, other.tenant)
    }

    fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }

    /// Whether a node may register with this id.
    pub(crate) fn allows_node(&self, node: &NodeId) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => node.as_str().starts_with(start),
            None => node.as_str() == pattern,
        };
        self.node_ids.is_empty() || self.node_ids.iter().any(fits)
    }

    /// An id for a node that gives none; `None` if all that it may have are fixed.
    pub(crate) fn new_node_id(&self) -> Option<NodeId> {
        let start = match self.node_ids.as_slice() {
            [] => "node-",
            patterns => patterns.iter().find_map(|pattern| pattern.strip_suffix('*'))?,
        };
        NodeId::new(&format!("{start}{:08X}", rand::random::<u32>())).ok()
    }

    /// A token without a name, a tenant or limits.
    pub fn new(role: Role) -> Self {
        Self {
            name: "".into(),
            tenant: None,
            role,
            limits: UsageLimits::default(),
            node_ids: vec![],
            nodes_max: None,
            expires_ms: None,
        }
    }
}

/// Who sends a request.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    /// The tenant that owns what the request makes.
    pub(crate) tenant: Tenant,
    /// The hash of the token; absent if the server has no tokens.
    pub(crate) token: Option<TokenHash>,
    /// What the token allows; of role admin, without a name, if the server has no tokens.
    pub(crate) holder: Arc<KnownToken>,
    /// What its grant allows, if it shows one instead of a token.
    pub(crate) grant: Option<Arc<VerifiedGrant>>,
    /// The address that it calls from.
    pub(crate) remote: Option<IpAddr>,
}

impl Sender {
    /// The only tenant whose objects exist for this caller; `None` if all do.
    pub(crate) fn scope(&self) -> Option<Tenant> {
        match self.holder.role {
            Role::Viewer | Role::Admin => self.holder.tenant,
            Role::Node | Role::Client => Some(self.tenant),
        }
    }

    /// The token, if it has limits of its own.
    pub(crate) fn limited_token(&self) -> Option<LimitedToken> {
        let limits = self.holder.limits;
        let token = self.token.filter(|_| limits != UsageLimits::default())?;
        // A name may have several tokens, which share its limits.
        let hash = match &*self.holder.name {
            "" => token,
            name => TokenHash::of(name),
        };
        Some(LimitedToken { hash: hash.bytes(), limits })
    }

    /// Whether the caller may read what was said in the jobs that it sees.
    pub(crate) fn sees_texts(&self) -> bool {
        self.holder.role != Role::Viewer
    }

    /// Whether the caller may look at the fleet.
    pub(crate) fn sees_fleet(&self) -> bool {
        Access::Fleet.roles().contains(&self.holder.role)
    }

    /// Whether the job exists for this caller.
    pub(crate) fn sees_job(&self, job: &JobStatus) -> bool {
        self.scope().is_none_or(|tenant| job.is_of(tenant))
    }

    /// Whether jobs of this caller may use the node: it is public, or of the caller's tenant.
    pub(crate) fn sees_node(&self, node: &Profile) -> bool {
        let tenant = self.scope();
        tenant.is_none_or(|tenant| node.accepts_public() || node.tenant() == tenant)
    }

    /// Whether the caller, who may look at the fleet, may look at this node.
    pub(crate) fn owns_node(&self, node: &Profile) -> bool {
        self.scope().is_none_or(|tenant| node.tenant() == tenant)
    }

    /// Whether an event concerns this caller: jobs of its tenant, texts unless it only looks, nodes
    /// and leaders if it may look at the whole fleet.
    pub(crate) fn sees_event(&self, event: &EngineEvent) -> bool {
        match event {
            EngineEvent::Job { tenant, text, .. } => {
                let is_shown = text.is_none() || self.sees_texts();
                is_shown && self.scope().is_none_or(|own| own == *tenant)
            }
            EngineEvent::Node { .. } | EngineEvent::Leader { .. } => {
                self.sees_fleet() && self.scope().is_none()
            }
            EngineEvent::Pools { .. } => true,
        }
    }

    /// To whom the nodes belong that this caller registers; `None` if the server has no tokens. A
    /// token without a name is known by its hash.
    pub(crate) fn token_name(&self) -> Option<TokenName> {
        let hash = self.token?;
        TokenName::new(&self.holder.name)
            .or_else(|_| TokenName::new(&format!("sha256:{hash}")))
            .ok()
    }

    /// Its name for people: that of the token, the key and subject of a grant, or a part of the
    /// token's hash.
    pub(crate) fn actor(&self) -> String {
        match self.token {
            None => "anyone".to_owned(),
            Some(hash) if self.holder.name.is_empty() => {
                format!("sha256:{}", &hash.to_string()[..12])
            }
            Some(_) => self.holder.name.to_string(),
        }
    }

    fn of(token: Option<TokenHash>, holder: &Arc<KnownToken>) -> Self {
        let tenant = holder.tenant.unwrap_or_default();
        Self { tenant, token, holder: Arc::clone(holder), grant: None, remote: None }
    }
}

/// All known tokens.
#[derive(Debug, Clone)]
pub struct Tokens {
    known: HashMap<TokenHash, Arc<KnownToken>>,
    keys: GrantKeys,
    /// What callers without a token are; `None` if they are refused.
    anyone: Option<Arc<KnownToken>>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self::new([])
    }
}

/// The protocol that a browser's WebSocket offers and the server selects.
pub(crate) const PROTOCOL: &str = "lingua.v1";

/// Browsers cannot set headers of a WebSocket: they offer a second protocol, which is this and the
/// token.
const TOKEN_PROTOCOL: &str = "lingua.token.";

/// The token that a request shows, valid or not.
pub(crate) fn shown_token(headers: &HeaderMap) -> Option<&str> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(authorization) = text(header::AUTHORIZATION) {
        let (scheme, token) = authorization.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim());
    }
    let mut protocols = text(header::SEC_WEBSOCKET_PROTOCOL)?.split(',').map(str::trim);
    protocols.find_map(|protocol| protocol.strip_prefix(TOKEN_PROTOCOL))
}

impl Tokens {
    /// Makes the set from hashes and what they stand for. Without any, every caller may do
    /// everything, unless tokens are [`required`](Self::required).
    pub fn new(tokens: impl IntoIterator<Item = (TokenHash, KnownToken)>) -> Self {
        let tokens = tokens.into_iter().map(|(hash, token)| (hash, Arc::new(token)));
        let known: HashMap<_, _> = tokens.collect();
        let anyone = known.is_empty().then(|| Arc::new(KnownToken::new(Role::Admin)));
        Self { known, keys: GrantKeys::default(), anyone }
    }

    /// Accepts grants that these keys signed; callers without a grant or a token are refused.
    pub fn with_keys(self, keys: Vec<GrantKey>) -> Self {
        let anyone = self.anyone.filter(|_| keys.is_empty());
        Self { keys: GrantKeys::new(keys), anyone, ..self }
    }

    /// Refuses callers without a token even if no token is known.
    pub fn required(self) -> Self {
        Self { anyone: None, ..self }
    }

    /// Whether callers need no token.
    pub fn is_open(&self) -> bool {
        self.anyone.is_some()
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no token is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Says whose the token of a request is.
    pub(crate) fn identify(&self, shown: Option<&str>, now_ms: u64) -> Result<Sender, AccessError> {
        if let Some(anyone) = &self.anyone {
            return Ok(Sender::of(None, anyone));
        }
        let shown = shown.ok_or(AccessError::UnknownToken)?;
        let hash = TokenHash::of(shown);
        match self.known.get(&hash) {
            None => self.keys.verify(shown, now_ms).unwrap_or(Err(AccessError::UnknownToken)),
            Some(token) if token.has_expired(now_ms) => Err(AccessError::Expired),
            Some(token) => Ok(Sender::of(Some(hash), token)),
        }
    }

    /// Checks a caller that had access. Says when its token expires.
    fn recheck(&self, sender: &Sender, now_ms: u64) -> Result<Option<u64>, AccessError> {
        let current = match (&sender.grant, &sender.token) {
            (Some(grant), _) => self.keys.knows(grant).then_some(&sender.holder),
            (None, Some(hash)) => self.known.get(hash),
            (None, None) => self.anyone.as_ref(),
        };
        match current.filter(|current| current.is_same(&sender.holder)) {
            None => Err(AccessError::Revoked),
            Some(token) if token.has_expired(now_ms) => Err(AccessError::Expired),
            Some(token) => Ok(token.expires_ms),
        }
    }
}

impl Sender {
    /// Checks that the caller may use a route.
    pub(crate) fn may(self, needed: Access) -> Result<Self, AccessError> {
        if self.grant.is_some() && !matches!(needed, Access::Session | Access::Any) {
            return Err(AccessError::GrantOnly);
        }
        match self.holder.role {
            role if needed.roles().contains(&role) => Ok(self),
            role => Err(AccessError::WrongRole { role, needed }),
        }
    }
}

/// Why a caller may not use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessError {
    #[error(
        "no valid token; send 'Authorization: Bearer TOKEN', or offer the WebSocket protocols \
         '{PROTOCOL}' and '{TOKEN_PROTOCOL}TOKEN'"
    )]
    UnknownToken,
    #[error("the token or grant has expired; use another one")]
    Expired,
    #[error("the token, or the key of the grant, was revoked or changed; use another one")]
    Revoked,
    #[error("the grant is not valid: {0}")]
    BadGrant(&'static str),
    #[error("a grant opens sessions only; use a token")]
    GrantOnly,
    #[error("a token with role {role} may not do this; use one with role {}", or(needed.roles()))]
    WrongRole { role: Role, needed: Access },
}

fn or(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_token_allows_its_role_and_admin_allows_all() {
        let (node, admin) = (new_token(), new_token());
        assert_ne!(node, admin);
        let tokens = Tokens::new([
            (TokenHash::of(&node), KnownToken::new(Role::Node)),
            (TokenHash::of(&admin), KnownToken::new(Role::Admin)),
        ]);
        let allow = |shown, needed| tokens.identify(shown, 0).and_then(|sender| sender.may(needed));
        assert!(allow(Some(&node), Access::Node).is_ok());
        assert!(allow(Some(&admin), Access::Client).is_ok());
        let denied = AccessError::WrongRole { role: Role::Node, needed: Access::Admin };
        assert_eq!(allow(Some(&node), Access::Admin).unwrap_err(), denied);
        for wrong in [None, Some(""), Some("guess")] {
            assert_eq!(allow(wrong, Access::Node).unwrap_err(), AccessError::UnknownToken);
        }
        let none = Tokens::default();
        assert!(none.identify(None, 0).and_then(|sender| sender.may(Access::Admin)).is_ok());
        let refused = none.required().identify(None, 0).unwrap_err();
        assert_eq!(refused, AccessError::UnknownToken, "the last token was removed");
    }

    #[test]
    fn a_token_is_refused_from_the_moment_it_expires() {
        let token = KnownToken { expires_ms: Some(1_000), ..KnownToken::new(Role::Client) };
        let tokens = Tokens::new([(TokenHash::of("x"), token)]);
        assert!(tokens.identify(Some("x"), 999).is_ok());
        assert_eq!(tokens.identify(Some("x"), 1_000).unwrap_err(), AccessError::Expired);
    }

    #[test]
    fn a_token_is_shown_in_a_header_or_as_a_protocol() {
        let shown = |name: HeaderName, value: &str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]);
            shown_token(&headers).map(str::to_owned)
        };
        for value in ["Bearer x", "bearer x", "BEARER  x "] {
            assert_eq!(shown(header::AUTHORIZATION, value).as_deref(), Some("x"), "{value}");
        }
        assert_eq!(shown(header::AUTHORIZATION, "Basic x"), None);
        let protocol = header::SEC_WEBSOCKET_PROTOCOL;
        let offered = shown(protocol.clone(), "lingua.v1, lingua.token.x");
        assert_eq!(offered.as_deref(), Some("x"));
        assert_eq!(shown(protocol, "lingua.v1"), None);
    }

    #[test]
    fn a_hash_reads_back() {
        let hash = TokenHash::of("secret");
        assert_eq!(TokenHash::from_hex(&hash.to_string()), Some(hash));
        assert_eq!(TokenHash::from_hex("zz"), None);
    }
}
