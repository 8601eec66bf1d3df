//! Tokens and tenants in the configuration.
//!
//! Start at [`AuthConfig::tokens`] and [`AuthConfig::tenants`].

use lingua_core::{Tenant, TenantRules, UsageLimits};
use lingua_server::auth::{KnownToken, Role, TokenHash, Tokens};
use serde::{Deserialize, Serialize};

use super::BadConfig;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthConfig {
    pub(crate) allow_insecure: bool,
    pub(crate) tokens: Vec<TokenConfig>,
    pub(crate) tenants: Vec<TenantConfig>,
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
    sha256: String,
    limits: Option<UsageConfig>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
    nodes_max: Option<usize>,
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
    sessions: Option<usize>,
    event_streams: Option<usize>,
    priority_max: Option<i32>,
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
        bytes.ok_or_else(|| BadConfig(format!("open_bytes is {text:?}; write it as in \"64MiB\"")))
    }
}

impl UsageConfig {
    fn limits(&self) -> Result<UsageLimits, BadConfig> {
        Ok(UsageLimits {
            requests_per_second: self.requests_per_second,
            open_jobs: self.open_jobs,
            open_bytes: self.open_bytes.as_ref().map(ByteSize::bytes).transpose()?,
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
    fn known(&self) -> Result<(TokenHash, KnownToken), BadConfig> {
        let name = &self.name;
        let bad = |what: String| BadConfig(format!("token {name:?} {what}"));
        let role: Role = self.role.parse().map_err(|known: String| {
            let role = &self.role;
            bad(format!("has role {role:?}; {known}"))
        })?;
        let hash = TokenHash::from_hex(&self.sha256)
            .ok_or_else(|| bad("has a sha256 that is not 64 hexadecimal digits".to_owned()))?;
        let tenant = self.tenant.as_deref().map(|tenant| {
            tenant.parse().map_err(|error| bad(format!("has tenant {tenant:?}: {error}")))
        });
        let token = KnownToken {
            name: name.as_str().into(),
            tenant: tenant.transpose()?,
            role,
            limits: limits(self.limits.as_ref())?,
            node_ids: self.nodes.clone(),
            nodes_max: self.nodes_max,
        };
        Ok((hash, token))
    }
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
            keep_text: self.keep_text.unwrap_or(usual.keep_text),
            retention_ms: self.retention_ms,
            public: self.public.unwrap_or(usual.public),
        };
        Ok((tenant, rules))
    }
}

impl AuthConfig {
    pub(crate) fn tokens(&self) -> Result<Tokens, BadConfig> {
        let tokens: Result<Vec<_>, _> = self.tokens.iter().map(TokenConfig::known).collect();
        Ok(Tokens::new(tokens?))
    }

    pub(crate) fn tenants(&self) -> Result<Vec<(Tenant, TenantRules)>, BadConfig> {
        self.tenants.iter().map(TenantConfig::rules).collect()
    }
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
}
