//! What a caller sends: all of it, within bounds of size and time.
//!
//! Start at [`Sent`]. hyper's timeout ends with the headers; without this one a caller could send half
//! of a body and keep its connection for ever.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use lingua_engine::Timer;
use lingua_store::Store;
use lingua_wire::ErrorCode;

use crate::app::App;
use crate::reply::Failed;

/// The body of a request.
pub(crate) struct Sent(pub(crate) Bytes);

impl<S: Store, T: Timer> FromRequest<App<S, T>> for Sent {
    type Rejection = Failed;

    async fn from_request(request: Request, app: &App<S, T>) -> Result<Self, Failed> {
        let options = &app.shared.options;
        let limit_ms = options.body_ms;
        let whole = Bytes::from_request(request, app);
        // A body that came with its headers is there at once, and no timer is started for it.
        match tokio::time::timeout(Duration::from_millis(limit_ms), whole).await {
            Ok(Ok(body)) => Ok(Self(body)),
            Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                let max = options.body_bytes_max;
                let detail = format!("the body has more than {max} bytes; send less at once");
                Err(Failed::new(ErrorCode::PayloadTooLarge, detail))
            }
            Ok(Err(error)) => {
                let detail = format!("the body cannot be read: {}", error.body_text());
                Err(Failed::new(ErrorCode::InvalidRequest, detail))
            }
            Err(_) => Err(late(limit_ms)),
        }
    }
}

/// A body that took too long.
pub(crate) fn late(limit_ms: u64) -> Failed {
    let detail = format!("the body did not arrive within {limit_ms} ms; send it again");
    Failed::new(ErrorCode::InvalidRequest, detail)
}
