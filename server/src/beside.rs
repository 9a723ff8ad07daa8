//! What a small API of another command has in common with this server.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::access;

/// Guards these routes as the server guards its own: on a loopback address a foreign `Host` is refused, answers are
/// harmless in a browser, and what is not there is refused in the shape of the API. `listens` is the address as the
/// listener has it.
pub fn guarded(routes: Router, listens: SocketAddr) -> Router {
    routes
        .fallback(async |request: Request| access::unknown_call(request.method(), request.uri().path()))
        .method_not_allowed_fallback(async |request: Request| {
            access::unknown_method(request.method(), request.uri().path())
        })
        .layer(from_fn_with_state(listens, access::known_host))
        .layer(from_fn(access::safe_headers))
}
