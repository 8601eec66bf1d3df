//! Decides whether a caller may use a route: rate limit, token, origin.
//!
//! Start at [`guard`]. Invariant: the rate limit counts before the token is looked at, so that
//! guessing tokens is limited too.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName, header};
use lingua_engine::Timer;
use lingua_store::Store;
use lingua_wire::ErrorCode;

use crate::app::App;
use crate::auth::{Access, AccessError, Sender, shown_token, wall_ms};
use crate::limit::{Caller, Limiter};
use crate::metrics::Refused;
use crate::reply::ApiError;

/// Refuses a request whose caller has no such access; tells routes who it is.
pub(crate) fn guard<S: Store, T: Timer>(
    app: &App<S, T>,
    access: Access,
    request: &mut Request,
) -> Result<Sender, ApiError> {
    let peer = peer_of(request);
    let (sender, caller) = check(app, access, request.headers(), peer)?;
    request.extensions_mut().insert(sender.clone());
    request.extensions_mut().insert(caller);
    Ok(sender)
}

/// Refuses a request for a page that needs no token, if its address asks too often.
pub(crate) fn guard_open<S: Store, T: Timer>(
    app: &App<S, T>,
    request: &Request,
) -> Result<(), ApiError> {
    // Load balancers ask for it as often as they like; it costs nothing.
    match request.uri().path() == "/healthz" {
        true => Ok(()),
        false => within_rate(app, &app.open_limiter, Caller::at(peer_of(request))),
    }
}

fn peer_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| peer.ip())
}

fn within_rate<S: Store, T: Timer>(
    app: &App<S, T>,
    limiter: &Limiter,
    caller: Caller,
) -> Result<(), ApiError> {
    limiter.check(caller).map_err(|wait_ms| {
        app.metrics.rate_limited.inc();
        let detail = format!("too many requests; try again in {wait_ms} ms");
        ApiError::new(ErrorCode::RateLimited, detail).with_retry_after_ms(wait_ms)
    })
}

fn check<S: Store, T: Timer>(
    app: &App<S, T>,
    access: Access,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<(Sender, Caller), ApiError> {
    let sender = app.options.tokens.current().identify(shown_token(headers), wall_ms());
    if let Some(limiter) = &app.limiter {
        let token = sender.as_ref().ok().and_then(|sender| sender.token);
        let caller = token.map_or_else(|| Caller::at(peer), Caller::Token);
        within_rate(app, limiter, caller)?;
    }
    let sender = sender.and_then(|sender| sender.may(access));
    let sender = sender.map_err(|error| app.refused(error))?;
    match foreign_origin(headers, &app.options.allowed_origins) {
        None => {
            let caller = sender.token.map_or_else(|| Caller::at(peer), Caller::Token);
            Ok((sender, caller))
        }
        Some(origin) => {
            app.metrics.count_refused(Refused::ForeignOrigin);
            let detail = format!(
                "pages of {origin} may not call this server; add it to server.allowed_origins"
            );
            Err(ApiError::new(ErrorCode::Forbidden, detail))
        }
    }
}

impl AccessError {
    /// The reason under which it is counted.
    pub(crate) fn reason(self) -> Refused {
        match self {
            Self::UnknownToken => Refused::UnknownToken,
            Self::Expired => Refused::ExpiredToken,
            Self::Revoked => Refused::RevokedToken,
            Self::WrongRole { .. } => Refused::WrongRole,
        }
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let code = match error {
            AccessError::WrongRole { .. } => ErrorCode::Forbidden,
            _ => ErrorCode::Unauthorized,
        };
        Self::new(code, error.to_string())
    }
}

fn visible(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
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
