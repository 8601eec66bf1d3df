//! Grants: short-lived JWTs that the server of an app signs for its users.
//!
//! Start at [`GrantKeys::verify`]. A key belongs to one tenant and has one algorithm: HS256 for a
//! secret, EdDSA for a public key. The header of a grant cannot choose another.
//!
//! Invariant: nothing that a grant claims is used before its signature was checked, except for the
//! name of the key to check it with.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use lingua_core::{LangPair, Tenant, UsageLimits, is_hidden};
use lingua_wire::lang;
use serde::{Deserialize, Serialize};

use super::{AccessError, KnownToken, Role, Sender, TokenHash};

/// Longest time from now to the expiry of a grant.
pub const GRANT_SECONDS_MAX: u64 = 24 * 3600;

/// How far the clocks of the signer and of this server may be apart.
const LEEWAY_SECONDS: u64 = 30;

/// Shortest secret, in bytes: as long as the hash that it is used with.
const SECRET_BYTES_MIN: usize = 32;

/// Longest subject.
const SUBJECT_BYTES_MAX: usize = 128;

/// Most rooms or pairs of languages in a grant; its header has to fit into a request anyway.
const LIST_MAX: usize = 256;

/// What a grant says.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantClaims {
    /// The id of the key.
    pub iss: String,
    /// The user; sessions are counted for each.
    pub sub: String,
    /// When it expires, in seconds since the epoch.
    pub exp: u64,
    /// The tenant of the key, if it is named.
    #[serde(default)]
    pub tenant: Option<String>,
    /// What the user may do.
    #[serde(default)]
    pub lingua: GrantAbilities,
}

/// What the holder of a grant may do.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GrantAbilities {
    /// Sessions at a time; 1 if absent.
    pub sessions: Option<usize>,
    /// Rooms that the user may enter: their ids, or `*`.
    pub rooms: Option<GrantRooms>,
    /// Pairs of languages, as in `zh:en`; all if absent.
    pub langs: Option<Vec<String>>,
}

/// The rooms of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GrantRooms {
    /// One id, or `*` for all.
    One(String),
    /// These ids.
    Ids(Vec<String>),
}

/// Why a key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrantKeyError {
    /// A secret that could be guessed.
    #[error("the secret has less than {SECRET_BYTES_MIN} bytes; 'openssl rand -hex 32' makes one")]
    ShortSecret,
    /// A public key is no secret.
    #[error("this is a key in PEM form and no secret; give a public key as public_key_file")]
    PemSecret,
    /// Not an Ed25519 key in PEM form.
    #[error("this is no Ed25519 key in PEM form")]
    NotEd25519,
}

/// A key that signs grants of one tenant.
#[derive(Clone)]
pub struct GrantKey {
    id: Arc<str>,
    tenant: Tenant,
    key: DecodingKey,
    validation: Validation,
    /// Of the key, to see whether it changed.
    hash: TokenHash,
}

impl fmt::Debug for GrantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantKey({} of {})", self.id, self.tenant)
    }
}

impl GrantKey {
    /// Its id, which grants name as `iss`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// To whom belongs what its grants make.
    pub fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// HS256 with the content of a secret file; white space around it does not count.
    pub fn from_secret(id: &str, tenant: Tenant, file: &[u8]) -> Result<Self, GrantKeyError> {
        let secret = secret_of(file)?;
        let key = DecodingKey::from_secret(secret);
        Ok(Self::new(id, tenant, key, Algorithm::HS256, secret))
    }

    /// EdDSA with an Ed25519 public key in PEM form.
    pub fn from_public_pem(id: &str, tenant: Tenant, pem: &[u8]) -> Result<Self, GrantKeyError> {
        let key = DecodingKey::from_ed_pem(pem).map_err(|_| GrantKeyError::NotEd25519)?;
        Ok(Self::new(id, tenant, key, Algorithm::EdDSA, pem))
    }

    fn new(id: &str, tenant: Tenant, key: DecodingKey, alg: Algorithm, bytes: &[u8]) -> Self {
        let mut validation = Validation::new(alg);
        validation.set_required_spec_claims(&["exp", "iss", "sub"]);
        validation.set_issuer(&[id]);
        // A grant may name its audience; one for somebody else is refused.
        validation.set_audience(&["lingua"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        Self { id: id.into(), tenant, key, validation, hash: TokenHash::of_bytes(&[bytes]) }
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.hash, self.tenant) == (other.hash, other.tenant)
    }
}

fn secret_of(file: &[u8]) -> Result<&[u8], GrantKeyError> {
    let secret = file.trim_ascii();
    match secret {
        pem if pem.starts_with(b"-----BEGIN") => Err(GrantKeyError::PemSecret),
        short if short.len() < SECRET_BYTES_MIN => Err(GrantKeyError::ShortSecret),
        secret => Ok(secret),
    }
}

/// Signs a grant with the content of a secret file, or with an Ed25519 private key in PEM form.
pub fn sign_grant(claims: &GrantClaims, file: &[u8]) -> Result<String, GrantKeyError> {
    let (algorithm, key) = match EncodingKey::from_ed_pem(file) {
        Ok(key) => (Algorithm::EdDSA, key),
        Err(_) => (Algorithm::HS256, EncodingKey::from_secret(secret_of(file)?)),
    };
    let signed = jsonwebtoken::encode(&Header::new(algorithm), claims, &key);
    signed.map_err(|_| GrantKeyError::NotEd25519)
}

/// What the holder of a verified grant may do.
#[derive(Debug)]
pub(crate) struct VerifiedGrant {
    key: Arc<GrantKey>,
    /// Pairs of languages; `None`: all.
    langs: Option<Vec<LangPair>>,
}

impl VerifiedGrant {
    /// Whether the holder may translate this pair. One for `zh:en` is good for `zh-CN:en` as well.
    pub(crate) fn allows(&self, pair: LangPair) -> bool {
        let Some(langs) = &self.langs else { return true };
        pair.lookups().any(|pair| langs.contains(&pair))
    }
}

/// All keys that sign grants, by id.
#[derive(Debug, Clone, Default)]
pub(super) struct GrantKeys(HashMap<Arc<str>, Arc<GrantKey>>);

/// The name of the key, before the signature was checked.
#[derive(Deserialize)]
struct Issuer {
    iss: String,
}

impl GrantKeys {
    pub(super) fn new(keys: impl IntoIterator<Item = GrantKey>) -> Self {
        Self(keys.into_iter().map(|key| (Arc::clone(&key.id), Arc::new(key))).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a grant's key is still in force.
    pub(super) fn knows(&self, grant: &VerifiedGrant) -> bool {
        self.0.get(&grant.key.id).is_some_and(|key| key.is_same(&grant.key))
    }

    /// Checks a grant; `None` if this is no JWT.
    pub(super) fn verify(&self, shown: &str, now_ms: u64) -> Option<Result<Sender, AccessError>> {
        let is_jwt = shown.bytes().filter(|byte| *byte == b'.').count() == 2;
        (is_jwt && !self.is_empty()).then(|| self.verify_jwt(shown, now_ms))
    }

    fn verify_jwt(&self, jwt: &str, now_ms: u64) -> Result<Sender, AccessError> {
        let bad = AccessError::BadGrant;
        let Issuer { iss } =
            insecure_decode_claims(jwt).map_err(|_| bad("it is no JWT with the claim iss"))?;
        let key = self.0.get(iss.as_str()).ok_or(bad("iss names no key of this server"))?;
        let decoded = jsonwebtoken::decode::<GrantClaims>(jwt, &key.key, &key.validation);
        let claims = decoded.map_err(|error| refusal(error.kind()))?.claims;
        if claims.exp > now_ms / 1_000 + GRANT_SECONDS_MAX + LEEWAY_SECONDS {
            return Err(bad("exp is more than 24 hours ahead"));
        }
        if claims.tenant.is_some_and(|tenant| tenant != key.tenant.to_string()) {
            return Err(bad("tenant is not that of the key"));
        }
        if !(1..=SUBJECT_BYTES_MAX).contains(&claims.sub.len()) {
            return Err(bad("sub must have 1 to 128 bytes"));
        }
        if claims.sub.chars().any(is_hidden) {
            return Err(bad("sub has control characters or others that are not shown"));
        }
        let GrantAbilities { sessions, rooms, langs } = claims.lingua;
        if let Some(GrantRooms::Ids(ids)) = rooms
            && ids.len() > LIST_MAX
        {
            return Err(bad("rooms has too many ids"));
        }
        let langs = langs.map(|langs| langs_of(&langs)).transpose()?;
        let holder = KnownToken {
            name: format!("{}/{}", key.id, claims.sub).into(),
            tenant: Some(key.tenant),
            expires_ms: Some((claims.exp + LEEWAY_SECONDS).saturating_mul(1_000)),
            limits: UsageLimits { sessions: Some(sessions.unwrap_or(1)), ..Default::default() },
            ..KnownToken::new(Role::Client)
        };
        // The library counts in whole seconds; open sockets end at this moment, too.
        if holder.has_expired(now_ms) {
            return Err(AccessError::Expired);
        }
        let token = TokenHash::of_bytes(&[key.id.as_bytes(), b"\0", claims.sub.as_bytes()]);
        let grant = Arc::new(VerifiedGrant { key: Arc::clone(key), langs });
        Ok(Sender { grant: Some(grant), ..Sender::of(Some(token), &Arc::new(holder)) })
    }
}

fn langs_of(langs: &[String]) -> Result<Vec<LangPair>, AccessError> {
    if langs.len() > LIST_MAX {
        return Err(AccessError::BadGrant("langs has too many pairs"));
    }
    let pairs = langs.iter().map(|text| lang::pool("langs", text));
    let pairs: Result<_, _> = pairs.collect();
    pairs.map_err(|_| AccessError::BadGrant("langs must be pairs such as zh:en"))
}

fn refusal(error: &ErrorKind) -> AccessError {
    AccessError::BadGrant(match error {
        ErrorKind::ExpiredSignature => return AccessError::Expired,
        ErrorKind::ImmatureSignature => "nbf is in the future",
        ErrorKind::InvalidSignature => "its signature is not that of the key",
        ErrorKind::InvalidAlgorithm => "alg is not that of the key",
        ErrorKind::InvalidAudience => "aud is not 'lingua'",
        ErrorKind::MissingRequiredClaim(_) => "it needs iss, sub and exp",
        ErrorKind::Json(_) => "a claim has the wrong type, or is missing",
        _ => "it cannot be read",
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Access, wall_ms};
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn keys() -> GrantKeys {
        let alice = GrantKey::from_secret("alice-key", "alice".parse().unwrap(), SECRET);
        GrantKeys::new([alice.unwrap()])
    }

    fn claims() -> GrantClaims {
        let exp = wall_ms() / 1_000 + 600;
        let (iss, sub) = ("alice-key".to_owned(), "user-1".to_owned());
        GrantClaims { iss, sub, exp, tenant: None, lingua: GrantAbilities::default() }
    }

    fn verify(claims: &GrantClaims) -> Result<Sender, AccessError> {
        let jwt = sign_grant(claims, SECRET).unwrap();
        keys().verify(&jwt, wall_ms()).expect("a JWT")
    }

    #[test]
    fn a_grant_is_its_tenants_and_opens_sessions_only() {
        let sender = verify(&claims()).unwrap();
        assert_eq!(sender.tenant.to_string(), "alice");
        assert_eq!(&*sender.holder.name, "alice-key/user-1");
        assert_eq!(sender.holder.limits.sessions, Some(1));
        assert!(sender.clone().may(Access::Session).is_ok());
        assert!(sender.clone().may(Access::Any).is_ok());
        let open = [Access::Session, Access::Any];
        for access in Access::ALL.iter().filter(|access| !open.contains(access)) {
            assert!(sender.clone().may(*access).is_err(), "{access}");
        }
    }

    #[test]
    fn a_grant_that_is_not_right_is_refused() {
        let now = wall_ms() / 1_000;
        let tenant = |name: &str| GrantClaims { tenant: Some(name.to_owned()), ..claims() };
        assert!(verify(&tenant("alice")).is_ok());
        assert!(verify(&tenant("bob")).is_err());
        let exp = |exp| verify(&GrantClaims { exp, ..claims() }).err();
        assert_eq!(exp(now - 5), None, "within the leeway");
        assert_eq!(exp(now - LEEWAY_SECONDS), Some(AccessError::Expired));
        assert_eq!(exp(now - 60), Some(AccessError::Expired));
        assert_eq!(exp(now + GRANT_SECONDS_MAX - 5), None);
        assert!(exp(now + GRANT_SECONDS_MAX + 120).is_some());
        assert!(verify(&GrantClaims { iss: "bob-key".into(), ..claims() }).is_err());
        let sub = |sub: &str| verify(&GrantClaims { sub: sub.to_owned(), ..claims() }).err();
        assert!(sub("").is_some() && sub(&"x".repeat(SUBJECT_BYTES_MAX + 1)).is_some());
        assert_eq!(sub("Ànn 你好 👩‍🚀"), None);
        for hidden in ["a\nb", "a\u{9b}2J", "a\u{202e}b", "\u{feff}a"] {
            let why = "sub has control characters or others that are not shown";
            assert_eq!(sub(hidden), Some(AccessError::BadGrant(why)), "{hidden:?}");
        }
        let other = sign_grant(&claims(), b"another secret of thirty-two bytes").unwrap();
        let refused = keys().verify(&other, wall_ms()).unwrap().unwrap_err();
        assert_eq!(refused, AccessError::BadGrant("its signature is not that of the key"));
    }

    #[test]
    fn rooms_are_ids_or_all_and_not_too_many() {
        let with = |rooms: serde_json::Value| {
            let lingua = serde_json::json!({"rooms": rooms});
            let claims = serde_json::json!({
                "iss": "alice-key", "sub": "user-1", "exp": claims().exp, "lingua": lingua,
            });
            let key = EncodingKey::from_secret(SECRET);
            let jwt = jsonwebtoken::encode(&Header::default(), &claims, &key).unwrap();
            keys().verify(&jwt, wall_ms()).expect("a JWT").err()
        };
        let many = |count| serde_json::json!(vec!["room"; count]);
        for right in ["\"*\"", "\"room-1\"", "[]", "[\"room-1\", \"room-2\"]", "null"] {
            assert_eq!(with(serde_json::from_str(right).unwrap()), None, "{right}");
        }
        assert_eq!(with(many(LIST_MAX)), None);
        let too_many = AccessError::BadGrant("rooms has too many ids");
        assert_eq!(with(many(LIST_MAX + 1)), Some(too_many));
        let wrong = AccessError::BadGrant("a claim has the wrong type, or is missing");
        for bad in ["7", "true", "{}", "[1]", "[[\"room-1\"]]", "[\"room-1\", null]"] {
            assert_eq!(with(serde_json::from_str(bad).unwrap()), Some(wrong), "{bad}");
        }
    }

    #[test]
    fn the_key_chooses_the_algorithm() {
        let signed = |header: &str| {
            let jwt = sign_grant(&claims(), SECRET).unwrap();
            let (_, rest) = jwt.split_once('.').unwrap();
            format!("{header}.{rest}")
        };
        // {"alg":"none","typ":"JWT"} and {"alg":"HS512","typ":"JWT"}
        for header in
            ["eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0", "eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9"]
        {
            assert!(keys().verify(&signed(header), wall_ms()).unwrap().is_err(), "{header}");
        }
        let pem = b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n";
        let as_secret = GrantKey::from_secret("k", Tenant::default(), pem);
        assert_eq!(as_secret.unwrap_err(), GrantKeyError::PemSecret);
        let short = GrantKey::from_secret("k", Tenant::default(), b"  short  \n");
        assert_eq!(short.unwrap_err(), GrantKeyError::ShortSecret);
    }

    #[test]
    fn a_grant_for_a_language_is_good_for_its_regions() {
        let langs = Some(vec!["zh:en".to_owned()]);
        let lingua = GrantAbilities { langs, ..GrantAbilities::default() };
        let sender = verify(&GrantClaims { lingua, ..claims() }).unwrap();
        let grant = sender.grant.unwrap();
        let allows = |pair: &str| grant.allows(pair.parse().unwrap());
        assert!(allows("zh:en") && allows("zh-CN:en"));
        assert!(!allows("en:zh") && !allows("zh:fr") && !allows("auto:en"));
    }
}
