//! The rate limit of calls about sessions.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use super::Access;
use crate::error::ApiFailure;
use crate::rate_limits::Peer;

/// Refuses an address that signs in too often. Its other calls about sessions count like calls without a token.
pub(crate) async fn limited_sign_ins(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    match request.extensions().get::<Peer>().copied() {
        Some(Peer(address)) if request.method() == Method::POST => access.rate_limits.count_sign_in(address)?,
        peer => access.rate_limits.count_call(peer, None)?,
    }
    Ok(next.run(request).await)
}
