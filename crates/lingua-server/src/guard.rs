//! Decides whether a caller may use a route: rate limit, token, origin.
//!
//! Start at [`guard`]. Invariant: the rate limit counts before the token is looked at, so that
//! guessing tokens is limited too.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use axum::extract::{ConnectInfo, Request};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use lingua_engine::Timer;
use lingua_store::Store;
use lingua_wire::ErrorCode;

use crate::app::App;
use crate::auth::{Access, AccessError, Sender, shown_token, wall_ms};
use crate::limit::{RateExceeded, RateLimitKey, RateOwner, RateState};
use crate::metrics::Refused;
use crate::reply::ApiError;

/// Refuses a request whose caller has no such access; tells routes who it is.
pub(crate) fn guard<S: Store, T: Timer>(
    app: &App<S, T>,
    access: Access,
    request: &mut Request,
) -> Result<Sender, ApiError> {
    let sender = identify(app, request)?;
    // Before the role is checked: who is refused is recorded, too.
    request.extensions_mut().insert(sender.clone());
    request.extensions_mut().insert(sender.caller());
    let sender = sender.may(access)?;
    check_origin(app, access, request.headers())?;
    Ok(sender)
}

/// Without tokens, refuses a request to a name that is not of this machine's loopback: a web page
/// could have its own name lead here, and would then call as if it were a page of this server.
pub(crate) fn check_host<S: Store, T: Timer>(
    app: &App<S, T>,
    request: &Request,
) -> Result<(), ApiError> {
    check_host_is_one(request)?;
    let options = &app.options;
    if !options.tokens.current().is_open() || options.allow_insecure {
        return Ok(());
    }
    let is_own = |host: &&str| {
        let name = host_name(host);
        is_loopback(name) || options.allowed_hosts.iter().any(|h| h.eq_ignore_ascii_case(name))
    };
    let named = request.headers().get_all(header::HOST).iter();
    let named = named.map(|host| host.to_str().unwrap_or("an unreadable name"));
    let in_uri = request.uri().authority().map(Authority::as_str);
    let Some(host) = named.chain(in_uri).find(|host| !is_own(host)) else { return Ok(()) };
    let detail = format!(
        "without tokens this server is called as localhost, 127.0.0.1 or [::1], not as {host:?}; \
         make tokens, or add the name to server.allowed_hosts"
    );
    Err(ApiError::new(ErrorCode::Forbidden, detail).because(Refused::ForeignHost))
}

/// A proxy and this server must not see different hosts in one request (RFC 9112, section 3.2).
fn check_host_is_one(request: &Request) -> Result<(), ApiError> {
    let detail = match request.headers().get_all(header::HOST).iter().count() {
        1 => return Ok(()),
        0 if request.version() != Version::HTTP_11 => return Ok(()),
        0 => "the request has no Host header; add it",
        _ => "the request has several Host headers; send one",
    };
    Err(ApiError::new(ErrorCode::InvalidRequest, detail))
}

/// A host without its port; an IPv6 address without its brackets.
pub(crate) fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

pub(crate) fn is_loopback(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses a request for a page that needs no token, if its address asks too often.
pub(crate) fn guard_open<S: Store, T: Timer>(
    app: &App<S, T>,
    request: &Request,
) -> Result<(), ApiError> {
    // Load balancers ask for it as often as they like; it costs nothing.
    match request.uri().path() == "/healthz" {
        true => Ok(()),
        false => match app.open_limiter.check(RateLimitKey::at(remote_of(request))) {
            Ok(_) => Ok(()),
            Err(exceeded) => Err(too_many(app, exceeded)),
        },
    }
}

/// Counts and tells that a caller sends too many requests.
fn too_many<S: Store, T: Timer>(app: &App<S, T>, exceeded: RateExceeded) -> ApiError {
    let wait_ms = exceeded.wait_ms;
    app.metrics.rate_limited.inc();
    let detail = format!("too many requests; try again in {wait_ms} ms");
    ApiError::new(ErrorCode::RateLimited, detail).with_retry_after_ms(wait_ms)
}

/// The address that a request comes from.
pub(crate) fn remote_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| peer.ip())
}

/// Who sends a request, if it does not send too many.
fn identify<S: Store, T: Timer>(
    app: &App<S, T>,
    request: &mut Request,
) -> Result<Sender, ApiError> {
    let remote = remote_of(request);
    let shown = shown_token(request.headers());
    let sender = app.options.tokens.current().identify(shown, wall_ms());
    let sender = sender.map(|sender| Sender { remote, ..sender });
    let rate = check_rate(app, sender.as_ref().ok(), remote);
    if let Some(state) = rate.unwrap_or_else(|exceeded| Some(exceeded.state())) {
        request.extensions_mut().insert(state);
    }
    if let Err(exceeded) = rate {
        return Err(too_many(app, exceeded));
    }
    Ok(sender?)
}

/// Counts a request against the rate of all callers, and against those of its token and its tenant.
/// Says what is left of the one with the least, if there is a limit.
fn check_rate<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: Option<&Sender>,
    remote: Option<IpAddr>,
) -> Result<Option<RateState>, RateExceeded> {
    let caller = sender.map_or_else(|| RateLimitKey::at(remote), Sender::caller);
    let common = app.limiter.as_ref().map(|limiter| limiter.check(caller)).transpose()?;
    let Some(sender) = sender else { return Ok(common) };
    let of_tenant = app.engine.usage_limiter().limits_of(sender.tenant).requests_per_second;
    let of_token = sender.holder.limits.requests_per_second;
    let mut least = common;
    // What its token refuses costs its tenant nothing.
    if let Some(per_second) = of_token.and_then(NonZeroU32::new) {
        let owner = RateOwner::Token(sender.actor());
        least = Some(app.own_rates.check(owner, per_second)?.lower(least));
    }
    if let Some(per_second) = of_tenant.and_then(NonZeroU32::new) {
        let owner = RateOwner::Tenant(sender.tenant);
        least = Some(app.own_rates.check(owner, per_second)?.lower(least));
    }
    Ok(least)
}

/// Refuses web pages of origins that are not allowed.
fn check_origin<S: Store, T: Timer>(
    app: &App<S, T>,
    access: Access,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    // A browser names no origin when a page loads an image, and the long poll of a node takes jobs.
    let is_cross_site = access == Access::Node && foreign_site(headers);
    let foreign = foreign_origin(headers, &app.options.allowed_origins);
    match foreign.or(is_cross_site.then_some("another site")) {
        None => Ok(()),
        Some(origin) => {
            let detail = format!(
                "pages of {origin} may not call this server; add it to server.allowed_origins"
            );
            Err(ApiError::new(ErrorCode::Forbidden, detail).because(Refused::ForeignOrigin))
        }
    }
}

impl Sender {
    /// Whose requests are counted: those of the token, else those of the address.
    fn caller(&self) -> RateLimitKey {
        self.token.map_or_else(|| RateLimitKey::at(self.remote), RateLimitKey::Token)
    }
}

impl AccessError {
    /// The reason under which it is counted.
    pub(crate) fn reason(self) -> Refused {
        match self {
            Self::UnknownToken => Refused::UnknownToken,
            Self::Expired => Refused::ExpiredToken,
            Self::Revoked => Refused::RevokedToken,
            Self::BadGrant(_) => Refused::BadGrant,
            Self::WrongRole { .. } | Self::GrantOnly => Refused::WrongRole,
        }
    }
}

fn visible(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a browser sends this for a page of another site, which names no origin.
fn foreign_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_foreign = site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    is_foreign && !headers.contains_key(header::ORIGIN)
}

/// The origin of a web page that is neither this server's own nor in the list.
fn foreign_origin<'a>(headers: &'a HeaderMap, allowed: &[String]) -> Option<&'a str> {
    let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or("an unreadable origin");
    let host = visible(headers, header::HOST).unwrap_or_default();
    let own = origin.split_once("://").is_some_and(|(_, rest)| rest == host);
    (!own && !allowed.iter().any(|known| known == origin)).then_some(origin)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_names_of_the_loopback_are_known() {
        for host in ["localhost", "LOCALHOST:7410", "127.0.0.1:1", "127.9.9.9", "[::1]:7410"] {
            assert!(is_loopback(host_name(host)), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:80", "[2001:db8::1]", "10.0.0.1"] {
            assert!(!is_loopback(host_name(host)), "{host}");
        }
    }

    #[test]
    fn a_browser_says_that_another_site_asks() {
        let of = |site| HeaderMap::from_iter([("sec-fetch-site".parse().unwrap(), site)]);
        let site = |site: &'static str| foreign_site(&of(HeaderValue::from_static(site)));
        assert!(site("cross-site") && site("same-site"));
        assert!(!site("same-origin") && !site("none") && !foreign_site(&HeaderMap::new()));
    }

    #[test]
    fn only_known_origins_may_call() {
        let headers = |origin| {
            HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static("localhost:7410")),
                (header::ORIGIN, HeaderValue::from_static(origin)),
            ])
        };
        let allowed = ["https://app.example".to_owned()];
        assert_eq!(foreign_origin(&headers("http://localhost:7410"), &allowed), None);
        assert_eq!(foreign_origin(&headers("https://app.example"), &allowed), None);
        let evil = headers("https://evil.example");
        assert_eq!(foreign_origin(&evil, &allowed), Some("https://evil.example"));
        assert_eq!(foreign_origin(&HeaderMap::new(), &allowed), None, "no browser, no origin");
    }
}
