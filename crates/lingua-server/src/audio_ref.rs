//! Which `audio_ref` a job may carry.
//!
//! Start at `AudioRefRules::check`. A node fetches what the reference names, from its own place
//! in the network: without rules a client could make it read files of the node, or services that
//! only the node reaches.
//!
//! Invariant: a reference that passes has an allowed scheme, and its host is allowed by name, or no
//! list of hosts is set and it is not an address of the node itself or its link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Schemes whose host is a name in a store, never an address in a network.
const STORES: [&str; 4] = ["blob", "s3", "gs", "azblob"];

/// The rules for references to audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudioRefRules {
    /// Schemes that are allowed, in lower case.
    pub schemes: Vec<String>,
    /// Hosts that are allowed: a name, an address, or `*.example.com` for all below it. If empty,
    /// all are but the node itself (loopback) and its link (link-local addresses).
    pub hosts: Vec<String>,
}

impl Default for AudioRefRules {
    fn default() -> Self {
        let schemes = ["blob", "s3", "gs", "https", "http"].map(str::to_owned);
        Self { schemes: schemes.into(), hosts: vec![] }
    }
}

impl AudioRefRules {
    /// Says what is wrong with a reference, and what to do.
    pub(crate) fn check(&self, audio_ref: &str) -> Result<(), String> {
        let schemes = || self.schemes.join(", ");
        let Some((scheme, rest)) = audio_ref.split_once(':') else {
            return Err(format!("it has no scheme; give a URL that begins with {}", schemes()));
        };
        let scheme = scheme.to_ascii_lowercase();
        if !self.schemes.contains(&scheme) {
            let allowed = schemes();
            return Err(format!(
                "the scheme {scheme:?} is not allowed; use {allowed}, or add it to \
                 server.audio_ref_schemes"
            ));
        }
        if audio_ref.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err("it has blanks, controls or backslashes; encode them".to_owned());
        }
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(format!("write {scheme}://, then the host and the path"));
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err("it names a user; references carry no passwords".to_owned());
        }
        let host = host_of(authority).to_ascii_lowercase();
        if !self.hosts.is_empty() {
            let allowed = self.hosts.iter().any(|known| is_below(&host, known));
            return if allowed { Ok(()) } else { Err(refused(&host)) };
        }
        match STORES.contains(&&*scheme) || is_elsewhere(&host) {
            true => Ok(()),
            false => Err(refused(&host)),
        }
    }
}

fn refused(host: &str) -> String {
    format!(
        "the host {host:?} is not allowed; add it to server.audio_ref_hosts if nodes may ask it"
    )
}

/// The host without a port; an IPv6 address without its brackets.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

fn is_below(host: &str, known: &str) -> bool {
    let known = known.to_ascii_lowercase();
    match known.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|name| name.ends_with('.')),
        None => host == known,
    }
}

/// Whether a host is neither the machine that asks nor on its link.
fn is_elsewhere(host: &str) -> bool {
    let name = host.trim_end_matches('.');
    if name.is_empty() || name == "localhost" || name.ends_with(".localhost") {
        return false;
    }
    if name.contains(':') {
        return name.parse::<Ipv6Addr>().is_ok_and(|v6| match v6.to_ipv4_mapped() {
            Some(v4) => is_remote(v4.into()),
            None => is_remote(v6.into()),
        });
    }
    // Libraries read 127.1, 2130706433 and 0x7f000001 as addresses: a name whose last part is a
    // number has to be a whole address.
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    !is_number || name.parse::<Ipv4Addr>().is_ok_and(|v4| is_remote(v4.into()))
}

fn is_remote(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_stores_and_hosts_elsewhere_are_allowed() {
        let rules = AudioRefRules::default();
        for good in [
            "blob://1",
            "s3://bucket/key.wav",
            "https://cdn.example.com/a.wav?x=1",
            "HTTPS://cdn.example.com",
            "http://10.0.0.7:9000/a.wav",
            "https://[2001:db8::1]/a",
        ] {
            assert_eq!(rules.check(good), Ok(()), "{good}");
        }
        for bad in [
            "/etc/passwd",
            "file:///etc/passwd",
            "FILE:///etc/passwd",
            "gopher://x",
            "javascript:alert(1)",
            "https:cdn.example.com",
            "http://localhost/a",
            "http://db.localhost:80/a",
            "http://localhost./a",
            "http://127.0.0.1/a",
            "http://127.1/a",
            "http://2130706433/a",
            "http://0x7f000001/a",
            "http://0.0.0.0/a",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]/a",
            "http://[::ffff:127.0.0.1]/a",
            "http://[fe80::1]/a",
            "http://user:pw@cdn.example.com/a",
            "http://cdn.example.com\\@127.0.0.1/a",
            "http:///a",
            "http://a b/c",
        ] {
            assert!(rules.check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_of_hosts_allows_only_those() {
        let hosts = ["*.example.com", "127.0.0.1", "Media"].map(str::to_owned);
        let rules = AudioRefRules { hosts: hosts.into(), ..AudioRefRules::default() };
        for good in ["https://a.example.com/x", "http://127.0.0.1:9000/x", "http://media/x"] {
            assert_eq!(rules.check(good), Ok(()), "{good}");
        }
        for bad in ["https://example.com/x", "https://badexample.com/x", "https://other/x"] {
            assert!(rules.check(bad).is_err(), "{bad}");
        }
    }
}
