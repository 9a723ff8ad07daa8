//! How often one address may try to sign in: everybody may call that, and each try costs a look into the store.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use governor::clock::DefaultClock;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::app::App;
use crate::error::ApiFailure;

/// Tries of one address at once, and for each minute after them.
const SIGN_INS: NonZeroU32 = NonZeroU32::MIN.saturating_add(29);
/// Addresses that are remembered before those whose tries are long over are forgotten.
const MAX_ADDRESSES: usize = 10_000;

/// The address at the other end of a connection; `connections.rs` puts it into each request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Counts tries by address.
pub(crate) struct SignIns(RateLimiter<IpAddr, HashMapStateStore<IpAddr>, DefaultClock>);

impl Default for SignIns {
    fn default() -> Self {
        Self(RateLimiter::hashmap(Quota::per_minute(SIGN_INS)))
    }
}

impl SignIns {
    /// Whether this address may try once more now.
    fn may_try(&self, address: IpAddr) -> bool {
        if self.0.len() > MAX_ADDRESSES {
            self.0.retain_recent();
        }
        self.0.check_key(&address).is_ok()
    }
}

/// Refuses an address that tries to sign in too often.
pub(crate) async fn limited_sign_ins(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    let peer = request.extensions().get::<Peer>().copied();
    if request.method() == Method::POST && peer.is_some_and(|Peer(address)| !app.sign_ins.may_try(address)) {
        return Err(ApiFailure::new(
            StatusCode::TOO_MANY_REQUESTS,
            "auth.too_many_tries",
            format!("an address may try to sign in {SIGN_INS} times a minute: wait a minute"),
        ));
    }
    Ok(next.run(request).await)
}
