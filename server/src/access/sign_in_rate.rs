//! The rate limit of sign-ins.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use super::Access;
use crate::error::ApiFailure;
use crate::rate_limits::Peer;

/// Refuses an address that tries to sign in too often.
pub(crate) async fn limited_sign_ins(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    if request.method() == Method::POST
        && let Some(Peer(address)) = request.extensions().get::<Peer>().copied()
    {
        access.rate_limits.count_sign_in(address)?;
    }
    Ok(next.run(request).await)
}
