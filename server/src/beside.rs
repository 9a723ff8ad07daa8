//! Shared protection for small APIs of other commands.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::access;

/// Protects these routes like the server's own routes.
///
/// A foreign `Host` is refused on a loopback address, answers are harmless in a browser, and missing paths get an API
/// error. `listens` is the address of the listener.
pub fn guarded(routes: Router, listens: SocketAddr) -> Router {
    routes
        .fallback(async |request: Request| access::unknown_call(request.method(), request.uri().path()))
        .method_not_allowed_fallback(async |request: Request| {
            access::unknown_method(request.method(), request.uri().path())
        })
        .layer(from_fn_with_state(listens, access::known_host))
        .layer(from_fn(access::safe_headers))
}
