//! Share links, which grant read access to one campaign or one run.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use nightshift_engine::store::{Creation, ShareRecord};
use nightshift_protocol::api::{CreateShare, Page, Share, ShareCreated, Target};
use nightshift_protocol::id::ShareId;

use super::{examine_label, page};
use crate::access::Access;
use crate::access::new_share_secret;
use crate::api::idempotency::Creating;
use crate::api::list::PageQuery;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::extract::{IdPath, Params, PathId};
use crate::secret::secret_hash;
use crate::shared::Shared;

/// Minimum lifetime of a link, in milliseconds.
const MIN_VALID_FOR_MS: u64 = 1_000;
/// Maximum lifetime of a link, in milliseconds: a year. Older links tend to be forgotten.
const MAX_VALID_FOR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

impl PathId for ShareId {
    const NOT_FOUND: &'static str = "share.not_found";
}

/// Lists links, newest first, including ended ones.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<Share>>, ApiFailure> {
    let request = query.request()?;
    let rows = shared.store.team.list_shares(&request).await?;
    Ok(Json(page(&request, rows)))
}

/// Creates a link. Only the answer contains its secret.
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Creating { wish, creator }: Creating<CreateShare>,
) -> Result<(StatusCode, Json<ShareCreated>), ApiFailure> {
    examine_label(&wish.label, "share.invalid")?;
    if matches!(wish.target, Target::Attempt(..)) {
        return Err(ApiFailure::bad(
            "share.invalid",
            "a link needs a campaign or a run as its target: the link of a run includes its attempts",
        ));
    }
    if !(MIN_VALID_FOR_MS..=MAX_VALID_FOR_MS).contains(&wish.valid_for_ms) {
        return Err(ApiFailure::bad(
            "share.invalid",
            format!("`valid_for_ms` of a link is from {MIN_VALID_FOR_MS} to {MAX_VALID_FOR_MS}"),
        ));
    }
    let (now, secret) = (shared.clock.now(), new_share_secret(&*shared.random));
    let share = Share {
        id: ShareId::from_uuid(shared.new_uuid()),
        target: wish.target,
        label: wish.label,
        author: caller.name,
        created_at: now,
        expires_at: now.plus_ms(wish.valid_for_ms),
        revoked_at: None,
    };
    let record = ShareRecord { view: share.clone(), secret_hash: secret_hash(&secret) };
    let answer = creator.create(&shared, Creation::Share(record), ShareCreated { share, secret }).await?;
    tracing::info!(share.id = %answer.1.share.id, by = %answer.1.share.author, "a link was created");
    Ok(answer)
}

/// Ends a link: at once on this server, within five seconds on others.
pub(crate) async fn revoke(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    IdPath(id): IdPath<ShareId>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Share>, ApiFailure> {
    let store = &shared.store.team;
    let result = store.revoke_share(&id, shared.clock.now()).await;
    shared.store_health.note_error(&result);
    result?;
    access.keys.forget();
    tracing::info!(share.id = %id, by = %caller.name, "a link was revoked");
    Ok(Json(store.load_share(&id).await?))
}
