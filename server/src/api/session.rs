//! `/session`: signs a browser in and out, and returns the caller's identity.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{AUTHORIZATION, SET_COOKIE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use nightshift_engine::store::SessionLimits;
use nightshift_protocol::access::Role;
use nightshift_protocol::api::{SessionView, SignIn, SignedInBy};

use crate::access::Access;
use crate::access::{Visitor, sessions};
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::extract::Body;
use crate::rate_limits::Peer;
use crate::secret::secret_hash;
use crate::shared::Shared;

/// Default duration of a session, in milliseconds: twelve hours.
const DEFAULT_VALID_FOR_MS: u64 = 12 * 60 * 60 * 1_000;
/// Maximum duration of a session, in milliseconds: thirty days.
const MAX_VALID_FOR_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// Minimum duration of a session, in milliseconds.
const MIN_VALID_FOR_MS: u64 = 1_000;
/// Maximum numbers of sessions: of one token or link, and of all.
const LIMITS: SessionLimits = SessionLimits { per_holder: 100, in_total: 10_000 };

/// Signs a browser in: sets a cookie that stands for a token.
pub(crate) async fn sign_in(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    headers: HeaderMap,
    Body(wish): Body<SignIn>,
) -> Result<Response, ApiFailure> {
    sessions::refuse_foreign_sign_in(&headers)?;
    let valid_for_ms = wish.valid_for_ms.unwrap_or(DEFAULT_VALID_FOR_MS);
    if !(MIN_VALID_FOR_MS..=MAX_VALID_FOR_MS).contains(&valid_for_ms) {
        return Err(ApiFailure::bad(
            "token.invalid_lifetime",
            format!("`valid_for_ms` of a session is from {MIN_VALID_FOR_MS} to {MAX_VALID_FOR_MS}"),
        ));
    }
    let secret = sessions::new_cookie(&*shared.random);
    let now = shared.clock.now();
    let (session, caller) = access.sign_in(wish.token.trim(), &secret, now.plus_ms(valid_for_ms)).await?;
    let valid_for_ms = session.expires_at.since_ms(now);
    let result = shared.store.sessions.create_session(session, LIMITS).await;
    shared.store_health.note_error(&result);
    result?;
    tracing::info!(by = %caller.name, "a browser was signed in");
    let cookie = sessions::set_cookie(&headers, &secret, valid_for_ms / 1_000)?;
    Ok((StatusCode::OK, [(SET_COOKIE, cookie)], Json(view(&caller))).into_response())
}

/// Signs a browser out. Repeating it changes nothing.
pub(crate) async fn sign_out(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    headers: HeaderMap,
) -> Result<Response, ApiFailure> {
    sessions::refuse_foreign_sign_in(&headers)?;
    if let Some(secret) = sessions::cookie(&headers) {
        let result = shared.store.sessions.end_session(&secret_hash(secret)).await;
        shared.store_health.note_error(&result);
        if result? {
            access.keys.forget_session(secret);
        }
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, sessions::set_cookie(&headers, "", 0)?)]).into_response())
}

/// Returns the caller's identity. An ended session counts as anonymous.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Json<SessionView>, ApiFailure> {
    let peer = peer.map(|Extension(peer)| peer);
    if let Some(caller) = access.caller(&Method::GET, headers.get(AUTHORIZATION), peer).await? {
        return Ok(Json(view(&caller)));
    }
    Ok(Json(match access.visitor(&headers, peer).await? {
        Visitor::Known(caller) => view(&caller),
        Visitor::Anonymous | Visitor::Ended => SessionView {
            by: SignedInBy::Nothing,
            name: None,
            role: (!shared.config.reads_need_token).then_some(Role::Viewer),
            limited_to: None,
            expires_at: None,
        },
    }))
}

fn view(caller: &Caller) -> SessionView {
    SessionView {
        by: if caller.by_cookie { SignedInBy::Session } else { SignedInBy::Token },
        name: Some(caller.name.clone()),
        role: Some(caller.role),
        limited_to: caller.limited_to.clone(),
        expires_at: caller.ends_at,
    }
}
