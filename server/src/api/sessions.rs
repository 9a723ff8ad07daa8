//! `/sessions`: lets administrators list browser sessions and end them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use nightshift_engine::store::{SessionHolder, SessionRecord, StoreError};
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::api::{OpenSession, Page};
use nightshift_protocol::id::TokenId;

use crate::access::Access;
use crate::access::sessions;
use crate::actor::Actor;
use crate::api::list::PageQuery;
use crate::error::ApiFailure;
use crate::extract::{Params, TextPath};
use crate::secret::secret_hash;
use crate::shared::Shared;

/// Maximum number of sessions in a list.
const MAX_LISTED: u32 = 1_000;
/// Length of a session's name: the first characters of its cookie's hash, which do not reveal the cookie.
const ID_CHARS: usize = 16;

/// Lists sessions, the latest first. Sessions whose token or link has ended are omitted.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<OpenSession>>, ApiFailure> {
    let own = sessions::cookie(&headers).map(secret_hash);
    let records = shared.store.sessions.list_sessions(shared.clock.now(), MAX_LISTED).await?;
    let tokens: HashMap<TokenId, TokenView> =
        shared.store.tokens.list_tokens().await?.into_iter().map(|token| (token.id.clone(), token)).collect();
    let mut items = Vec::with_capacity(records.len());
    for record in records {
        if let Some(mut session) = view(&shared, &tokens, &record).await? {
            session.own = own.as_ref() == Some(&record.secret_hash);
            items.push(session);
        }
    }
    Ok(Json(query.of_all(items, |session| session.id.clone())?))
}

async fn view(
    shared: &Shared,
    tokens: &HashMap<TokenId, TokenView>,
    record: &SessionRecord,
) -> Result<Option<OpenSession>, ApiFailure> {
    let now = shared.clock.now();
    let (name, role, limited_to) = match &record.holder {
        SessionHolder::Configured { .. } => ("operator".to_owned(), Role::Admin, None),
        SessionHolder::Token(id) => match tokens.get(id) {
            Some(token) if token.revoked_at.is_none() && token.expires_at.is_none_or(|end| end > now) => {
                (token.name.clone(), token.role, None)
            }
            _ => return Ok(None),
        },
        SessionHolder::Share(id) => match shared.store.team.load_share(id).await {
            Ok(share) if share.revoked_at.is_none() && share.expires_at > now => {
                (format!("link of {}", share.author), Role::Viewer, Some(share.target))
            }
            Ok(_) | Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Some(OpenSession {
        id: record.secret_hash.chars().take(ID_CHARS).collect(),
        name,
        role,
        limited_to,
        created_at: record.created_at,
        expires_at: record.expires_at,
        own: false,
    }))
}

/// Signs a browser out: at once on this server, within five seconds on others.
pub(crate) async fn end(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    TextPath(id): TextPath,
    actor: Actor,
) -> Result<StatusCode, ApiFailure> {
    let unknown = || ApiFailure::not_found("session.not_found", format!("there is no session `{id}`"));
    if id.len() != ID_CHARS || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(unknown());
    }
    let result = shared.store.sessions.end_session_named(&id).await;
    shared.store_health.note_error(&result);
    let was_there = result?;
    access.keys.forget();
    if !was_there {
        return Err(unknown());
    }
    tracing::info!(session.id = %id, by = actor.name(), "a browser was signed out");
    Ok(StatusCode::NO_CONTENT)
}
