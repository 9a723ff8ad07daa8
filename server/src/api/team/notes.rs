//! Notes in Markdown, stored as written. Pages sanitize them for display.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use nightshift_engine::store::Creation;
use nightshift_protocol::api::{EditRemark, MAX_REMARK_BYTES, NewRemark, Page, Remark};
use nightshift_protocol::id::RemarkId;

use super::{AmongQuery, examine_author, examine_target, page};
use crate::api::idempotency::Creating;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath, Params, PathId};
use crate::shared::Shared;

impl PathId for RemarkId {
    const NOT_FOUND: &'static str = "note.not_found";
}

/// Lists notes, newest first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<AmongQuery>,
) -> Result<Json<Page<Remark>>, ApiFailure> {
    let (among, request) = query.split()?;
    let rows = shared.store.team.list_remarks(&among, &request).await?;
    Ok(Json(page(&request, rows)))
}

/// Creates a note.
pub(crate) async fn add(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Creating { wish, creator }: Creating<NewRemark>,
) -> Result<(StatusCode, Json<Remark>), ApiFailure> {
    examine(&wish.text)?;
    examine_target(&shared, &wish.target).await?;
    let remark = Remark {
        id: RemarkId::from_uuid(shared.new_uuid()),
        target: wish.target,
        text: wish.text,
        author: caller.name,
        created_at: shared.clock.now(),
        edited_at: None,
    };
    creator.create(&shared, Creation::Note(remark.clone()), remark).await
}

/// Replaces the text of a note.
pub(crate) async fn edit(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RemarkId>,
    Extension(caller): Extension<Caller>,
    Body(wish): Body<EditRemark>,
) -> Result<Json<Remark>, ApiFailure> {
    examine(&wish.text)?;
    let store = &shared.store.team;
    examine_author(&caller, &store.load_remark(&id).await?.author, "note")?;
    let result = store.edit_remark(&id, &wish.text, shared.clock.now()).await;
    shared.store_health.note_error(&result);
    result?;
    Ok(Json(store.load_remark(&id).await?))
}

/// Deletes a note.
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RemarkId>,
    Extension(caller): Extension<Caller>,
) -> Result<StatusCode, ApiFailure> {
    let store = &shared.store.team;
    examine_author(&caller, &store.load_remark(&id).await?.author, "note")?;
    let result = store.delete_remark(&id).await;
    shared.store_health.note_error(&result);
    result?;
    Ok(StatusCode::NO_CONTENT)
}

fn examine(text: &str) -> Result<(), ApiFailure> {
    if text.trim().is_empty() || text.len() > MAX_REMARK_BYTES {
        let message = format!("a note has 1 to {MAX_REMARK_BYTES} bytes, and not only blanks");
        return Err(ApiFailure::bad("note.invalid_text", message));
    }
    Ok(())
}
