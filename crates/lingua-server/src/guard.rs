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
use crate::auth::{Access, AccessError, Sender, shown_token};
use crate::limit::Caller;
use crate::metrics::Refused;
use crate::reply::ApiError;

/// Refuses a request whose caller has no such access; tells routes who it is.
pub(crate) fn guard<S: Store, T: Timer>(
    app: &App<S, T>,
    access: Access,
    request: &mut Request,
) -> Result<(), ApiError> {
    let peer = request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| peer.ip());
    let sender = check(app, access, request.headers(), peer)?;
    request.extensions_mut().insert(sender);
    Ok(())
}

fn check<S: Store, T: Timer>(
    app: &App<S, T>,
    access: Access,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Sender, ApiError> {
    let tokens = &app.options.tokens;
    let shown = shown_token(headers);
    if let Some(limiter) = &app.limiter {
        let caller = match tokens.holder(shown) {
            Some((token, _)) => Caller::Token(token),
            None => Caller::at(peer),
        };
        if let Err(wait_ms) = limiter.check(caller) {
            app.metrics.rate_limited.inc();
            let detail = format!("too many requests; try again in {wait_ms} ms");
            let error = ApiError::new(ErrorCode::RateLimited, detail);
            return Err(error.with_retry_after_ms(wait_ms));
        }
    }
    let sender = tokens.allow(shown, access).map_err(|error| {
        let (code, reason) = match error {
            AccessError::UnknownToken => (ErrorCode::Unauthorized, Refused::UnknownToken),
            AccessError::WrongRole { .. } => (ErrorCode::Forbidden, Refused::WrongRole),
        };
        app.metrics.count_refused(reason);
        ApiError::new(code, error.to_string())
    })?;
    match foreign_origin(headers, &app.options.allowed_origins) {
        None => Ok(sender),
        Some(origin) => {
            app.metrics.count_refused(Refused::ForeignOrigin);
            let detail = format!(
                "pages of {origin} may not call this server; add it to server.allowed_origins"
            );
            Err(ApiError::new(ErrorCode::Forbidden, detail))
        }
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
