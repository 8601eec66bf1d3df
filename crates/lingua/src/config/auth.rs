//! Tokens, tenants and keys, in the configuration and in `auth.tokens_file`.
//!
//! Start at [`AuthConfig::identities`].
//!
//! Invariant: messages name tokens and lines, never what a file contains; it might be a secret.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use jiff::Timestamp;
use lingua_core::{Tenant, TenantRules, TokenName, UsageLimits};
use lingua_server::auth::{GrantKey, KnownToken, Role, TokenHash, Tokens};
use serde::{Deserialize, Serialize};

use super::BadConfig;
use super::grant_keys::{Files, KeyConfig, read_file};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthConfig {
    pub(crate) allow_insecure: bool,
    /// A file with more of them, which is read again when it changes.
    pub(crate) tokens_file: Option<PathBuf>,
    tokens: Vec<TokenConfig>,
    tenants: Vec<TenantConfig>,
    keys: Vec<KeyConfig>,
}

/// `auth.tokens_file` has the form of the configuration, with these lists only.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TokensFile {
    auth: FileLists,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileLists {
    tokens: Vec<TokenConfig>,
    tenants: Vec<TenantConfig>,
    keys: Vec<KeyConfig>,
}

/// Who may call, and the rules of tenants.
#[derive(Debug)]
pub(crate) struct Identities {
    pub(crate) tokens: Tokens,
    pub(crate) tenants: Vec<(Tenant, TenantRules)>,
}

/// The files that identities are made from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AuthFiles {
    tokens: Result<Vec<u8>, String>,
    keys: Files,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenConfig {
    #[serde(default)]
    name: String,
    role: String,
    /// To whom belongs what the token makes: `default` if absent.
    tenant: Option<String>,
    sha256: Hashes,
    expires: Option<String>,
    limits: Option<UsageConfig>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
    nodes_max: Option<usize>,
}

/// A caller has several tokens while they are replaced.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Hashes {
    One(String),
    Several(Vec<String>),
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantConfig {
    name: String,
    weight: Option<u32>,
    limits: Option<UsageConfig>,
    keep_text: Option<bool>,
    retention_ms: Option<u64>,
    public: Option<bool>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageConfig {
    requests_per_second: Option<u32>,
    open_jobs: Option<usize>,
    open_bytes: Option<ByteSize>,
    waiting_bytes: Option<ByteSize>,
    sessions: Option<usize>,
    event_streams: Option<usize>,
    priority_max: Option<i32>,
    nodes_max: Option<usize>,
}

/// A number of bytes: `65536`, `"64KiB"`, `"64MiB"` or `"1GiB"`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum ByteSize {
    Bytes(usize),
    Text(String),
}

impl ByteSize {
    fn bytes(&self) -> Result<usize, BadConfig> {
        let text = match self {
            Self::Bytes(bytes) => return Ok(*bytes),
            Self::Text(text) => text,
        };
        let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
        let unit = units.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
        let bytes = unit.and_then(|(number, bits)| {
            let number: usize = number.trim().parse().ok()?;
            number.checked_mul(1 << bits)
        });
        bytes.ok_or_else(|| {
            BadConfig(format!("a number of bytes is {text:?}; write it as in \"64MiB\""))
        })
    }
}

impl UsageConfig {
    fn limits(&self) -> Result<UsageLimits, BadConfig> {
        Ok(UsageLimits {
            requests_per_second: self.requests_per_second,
            open_jobs: self.open_jobs,
            open_bytes: self.open_bytes.as_ref().map(ByteSize::bytes).transpose()?,
            waiting_bytes: self.waiting_bytes.as_ref().map(ByteSize::bytes).transpose()?,
            sessions: self.sessions,
            event_streams: self.event_streams,
            priority_max: self.priority_max,
        })
    }
}

fn limits(usage: Option<&UsageConfig>) -> Result<UsageLimits, BadConfig> {
    usage.map_or(Ok(UsageLimits::default()), UsageConfig::limits)
}

impl TokenConfig {
    fn hashes(&self) -> Result<Vec<TokenHash>, BadConfig> {
        let texts = match &self.sha256 {
            Hashes::One(text) => std::slice::from_ref(text),
            Hashes::Several(texts) => texts,
        };
        let hashes: Option<Vec<_>> = texts.iter().map(|text| TokenHash::from_hex(text)).collect();
        hashes.filter(|hashes| !hashes.is_empty()).ok_or_else(|| {
            let name = &self.name;
            BadConfig(format!("token {name:?} has a sha256 that is not 64 hexadecimal digits"))
        })
    }

    fn known(&self) -> Result<KnownToken, BadConfig> {
        let name = &self.name;
        let bad = |what: String| BadConfig(format!("token {name:?} {what}"));
        if !name.is_empty() {
            TokenName::new(name).map_err(|error| bad(format!("has a bad name: {error}")))?;
        }
        let role: Role = self.role.parse().map_err(|known: String| {
            let role = &self.role;
            bad(format!("has role {role:?}; {known}"))
        })?;
        let tenant = self.tenant.as_deref().map(|tenant| {
            tenant.parse().map_err(|error| bad(format!("has tenant {tenant:?}: {error}")))
        });
        let expires = self.expires.as_deref().map(|text| {
            let how = "write it as in \"2027-01-01T00:00:00Z\"";
            expiry_ms(text).ok_or_else(|| bad(format!("expires {text:?}; {how}")))
        });
        Ok(KnownToken {
            name: name.as_str().into(),
            tenant: tenant.transpose()?,
            role,
            limits: limits(self.limits.as_ref())?,
            node_ids: self.nodes.clone(),
            nodes_max: [self.nodes_max, self.limits.as_ref().and_then(|limits| limits.nodes_max)]
                .into_iter()
                .flatten()
                .min(),
            expires_ms: expires.transpose()?,
        })
    }
}

/// An RFC 3339 time as milliseconds since the epoch; times before it are 0.
pub(crate) fn expiry_ms(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    Some(time.as_millisecond().max(0).unsigned_abs())
}

impl TenantConfig {
    fn rules(&self) -> Result<(Tenant, TenantRules), BadConfig> {
        let name = &self.name;
        let bad = |what: String| BadConfig(format!("tenant {name:?}: {what}"));
        let tenant = name.parse().map_err(|error| bad(format!("{error}")))?;
        let usual = TenantRules::default();
        let weight = self.weight.unwrap_or(usual.weight);
        if !(1..=1_000_000).contains(&weight) {
            return Err(bad(format!("weight is {weight}; use 1 to 1000000")));
        }
        let rules = TenantRules {
            weight,
            limits: limits(self.limits.as_ref())?,
            nodes_max: self.limits.as_ref().and_then(|limits| limits.nodes_max),
            keep_text: self.keep_text.unwrap_or(usual.keep_text),
            retention_ms: self.retention_ms,
            public: self.public.unwrap_or(usual.public),
        };
        Ok((tenant, rules))
    }
}

impl TokensFile {
    fn parse(bytes: &Result<Vec<u8>, String>) -> Result<FileLists, BadConfig> {
        let bytes =
            bytes.as_ref().map_err(|error| BadConfig(format!("auth.tokens_file: {error}")))?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| BadConfig("auth.tokens_file is not UTF-8".to_owned()))?;
        let file: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            BadConfig(format!("auth.tokens_file, line {line}: {}", error.message()))
        })?;
        Ok(file.auth)
    }
}

impl AuthConfig {
    /// Whether files name tokens or keys, which may change.
    pub(crate) fn has_files(&self) -> bool {
        self.tokens_file.is_some() || !self.keys.is_empty()
    }

    /// Reads the files; blocks. `before` is what they were, if they were read before.
    pub(crate) fn read(&self, before: Option<&AuthFiles>) -> AuthFiles {
        let tokens = self.tokens_file.as_deref().map_or(Ok(vec![]), |path| read_file(path, false));
        let mut keys = Files::new();
        match before.filter(|before| before.tokens == tokens) {
            // The same keys, without parsing the file again.
            Some(before) => before.keys.iter().for_each(|(path, (_, is_secret))| {
                keys.insert(path.clone(), (read_file(path, *is_secret), *is_secret));
            }),
            None => {
                let listed = TokensFile::parse(&tokens).map(|file| file.keys).unwrap_or_default();
                self.keys.iter().chain(&listed).for_each(|key| key.read(&mut keys));
            }
        }
        AuthFiles { tokens, keys }
    }

    /// The key of this id.
    pub(crate) fn key(&self, id: &str) -> Result<Option<KeyConfig>, BadConfig> {
        let file = TokensFile::parse(&self.read(None).tokens)?;
        Ok(self.keys.iter().chain(&file.keys).find(|key| key.id == id).cloned())
    }

    /// Everything that the configuration and the files list.
    pub(crate) fn identities(&self, files: &AuthFiles) -> Result<Identities, BadConfig> {
        let file = TokensFile::parse(&files.tokens)?;
        let tokens = known_tokens(self.tokens.iter().chain(&file.tokens))?;
        let keys = self.keys.iter().chain(&file.keys).map(|key| key.key(&files.keys));
        let keys: Vec<GrantKey> = keys.collect::<Result<_, _>>()?;
        let mut ids = HashSet::new();
        if let Some(twice) = keys.iter().find(|key| !ids.insert(key.id())) {
            return Err(BadConfig(format!("key {:?} is there twice", twice.id())));
        }
        let of_tokens = tokens.values().map(|token| token.tenant.unwrap_or_default());
        let named: Vec<Tenant> = of_tokens.chain(keys.iter().map(GrantKey::tenant)).collect();
        let tokens = Tokens::new(tokens).with_keys(keys);
        let tokens = match self.tokens_file {
            // Removing the last token locks everybody out, and does not let everybody in.
            Some(_) => tokens.required(),
            None => tokens,
        };
        let mut tenants = HashMap::new();
        for tenant in self.tenants.iter().chain(&file.tenants) {
            let (name, rules) = tenant.rules()?;
            if tenants.insert(name, rules).is_some() {
                return Err(BadConfig(format!("tenant {name} is there twice")));
            }
        }
        // What only tokens and keys name has the defaults.
        for tenant in named {
            tenants.entry(tenant).or_default();
        }
        Ok(Identities { tokens, tenants: tenants.into_iter().collect() })
    }
}

/// All hashes with what they stand for. Tokens of one name are those of one caller.
fn known_tokens<'a>(
    tokens: impl Iterator<Item = &'a TokenConfig>,
) -> Result<HashMap<TokenHash, KnownToken>, BadConfig> {
    let (mut by_hash, mut by_name) = (HashMap::new(), HashMap::new());
    for entry in tokens {
        let (name, token) = (&entry.name, entry.known()?);
        let identity = (token.role, token.tenant);
        if !name.is_empty() && *by_name.entry(name).or_insert(identity) != identity {
            let what = "is there twice, with different roles or tenants";
            return Err(BadConfig(format!("token {name:?} {what}")));
        }
        for hash in entry.hashes()? {
            if by_hash.insert(hash, token.clone()).is_some() {
                return Err(BadConfig(format!("token {name:?} has a sha256 that is there twice")));
            }
        }
    }
    Ok(by_hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_their_unit() {
        let read = |text: &str| ByteSize::Text(text.to_owned()).bytes().ok();
        assert_eq!(read("64MiB"), Some(64 << 20));
        assert_eq!((read("2 KiB"), read("7")), (Some(2048), Some(7)));
        assert_eq!((read("64MB"), read("-1"), read("99999999999GiB")), (None, None, None));
    }

    fn tokens(file: &str) -> Result<usize, String> {
        let auth = AuthConfig {
            allow_insecure: false,
            tokens_file: Some("tokens.toml".into()),
            tokens: vec![],
            tenants: vec![],
            keys: vec![],
        };
        let files = AuthFiles { tokens: Ok(file.as_bytes().to_vec()), keys: Files::new() };
        let identities = auth.identities(&files);
        identities.map(|identities| identities.tokens.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn tokens_of_one_name_are_those_of_one_caller() {
        let entry = |name: &str, role: &str, sha256: &str| {
            format!("[[auth.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = {sha256}\n")
        };
        let [a, b, c] = ["a", "b", "c"].map(|digit| digit.repeat(64));
        let both = entry("app", "client", &format!("[\"{a}\", \"{b}\"]"));
        assert_eq!(tokens(&both), Ok(2));
        let third = |role| both.clone() + &entry("app", role, &format!("\"{c}\""));
        assert_eq!(tokens(&third("client")), Ok(3));
        assert!(tokens(&third("admin")).unwrap_err().contains("different roles"));
        let twice = both.clone() + &entry("other", "client", &format!("\"{a}\""));
        assert!(tokens(&twice).unwrap_err().contains("twice"));
        assert!(tokens(&entry("app", "client", "[]")).is_err(), "no hash at all");
    }

    #[test]
    fn a_bad_file_is_told_by_its_line_and_not_by_what_it_contains() {
        let error = tokens("[[auth.tokens]]\nname = \"x\"\nrole = lingua_5ec\n").unwrap_err();
        assert!(error.contains("line 3") && !error.contains("5ec"), "{error}");
        assert!(tokens("[server]\nlisten = \"x\"\n").unwrap_err().contains("server"));
    }

    #[test]
    fn an_expiry_is_an_rfc_3339_time() {
        assert_eq!(expiry_ms("2027-01-01T00:00:00Z"), Some(1_798_761_600_000));
        assert_eq!(expiry_ms("2027-01-01T01:00:00+01:00"), expiry_ms("2027-01-01T00:00:00Z"));
        assert_eq!((expiry_ms("2027-01-01"), expiry_ms("soon")), (None, None));
    }
}
