//! Tokens: create, list, revoke. A secret is shown once; the store keeps its hash.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use nightshift_engine::store::{Creation, StoreError, TokenRecord};
use nightshift_protocol::access::{CreateToken, TokenCreated, TokenView};
use nightshift_protocol::api::Page;
use nightshift_protocol::id::TokenId;

use crate::access::Access;
use crate::actor::Actor;
use crate::api::idempotency::Creating;
use crate::api::list::PageQuery;
use crate::error::ApiFailure;
use crate::extract::{IdPath, Params, PathId};
use crate::secret::{new_secret, secret_hash};
use crate::shared::Shared;

/// Maximum length of a token's name.
const MAX_TOKEN_NAME_CHARS: usize = 100;
/// Minimum lifetime of a token, in milliseconds. A shorter one would end before it arrives.
const MIN_VALID_FOR_MS: u64 = 1_000;

impl PathId for TokenId {
    const NOT_FOUND: &'static str = "token.not_found";
}

/// Creates a token. Only the answer contains its secret.
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    actor: Actor,
    Creating { wish: request, creator }: Creating<CreateToken>,
) -> Result<(StatusCode, Json<TokenCreated>), ApiFailure> {
    examine(&request)?;
    let now = shared.clock.now();
    let secret = new_secret(&*shared.random);
    let view = TokenView {
        id: TokenId::from_uuid(shared.new_uuid()),
        name: request.name,
        role: request.role,
        created_at: now,
        expires_at: request.valid_for_ms.map(|valid_for_ms| now.plus_ms(valid_for_ms)),
        revoked_at: None,
        last_used_at: None,
    };
    let record = TokenRecord { view: view.clone(), secret_hash: secret_hash(&secret) };
    let answer = creator.create(&shared, Creation::Token(record), TokenCreated { token: view, secret }).await?;
    access.keys.forget();
    let view = &answer.1.token;
    tracing::info!(token.id = %view.id, token.role = view.role.as_str(), by = actor.name(), "a token was created");
    Ok(answer)
}

fn examine(request: &CreateToken) -> Result<(), ApiFailure> {
    let name_chars = request.name.trim().chars().count();
    if !(1..=MAX_TOKEN_NAME_CHARS).contains(&name_chars) || request.name.chars().any(char::is_control) {
        return Err(ApiFailure::bad(
            "token.invalid_name",
            format!("a token's name has 1 to {MAX_TOKEN_NAME_CHARS} characters and no control characters"),
        ));
    }
    if request.valid_for_ms.is_some_and(|valid_for_ms| valid_for_ms < MIN_VALID_FOR_MS) {
        return Err(ApiFailure::bad(
            "token.invalid_lifetime",
            format!("a token is valid for at least {MIN_VALID_FOR_MS} ms, or for good without `valid_for_ms`"),
        ));
    }
    Ok(())
}

/// Lists tokens, newest first, including revoked and expired ones.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<TokenView>>, ApiFailure> {
    Ok(Json(query.of_all(shared.store.tokens.list_tokens().await?, |token| token.id.to_string())?))
}

/// Revokes a token: at once on this server, within five seconds on others. Repeating it changes nothing.
pub(crate) async fn revoke(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    IdPath(id): IdPath<TokenId>,
    actor: Actor,
) -> Result<Json<TokenView>, ApiFailure> {
    let result = shared.store.tokens.revoke_token(&id, shared.clock.now()).await;
    shared.store_health.note_error(&result);
    result?;
    access.keys.forget();
    tracing::info!(token.id = %id, by = actor.name(), "a token was revoked");
    let token = shared.store.tokens.list_tokens().await?.into_iter().find(|token| token.id == id);
    Ok(Json(token.ok_or_else(|| StoreError::NotFound { noun: "token", id: id.to_string() })?))
}
