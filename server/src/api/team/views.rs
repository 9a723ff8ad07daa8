//! Saved views: a page with its query, under a name.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use nightshift_engine::store::Creation;
use nightshift_protocol::api::{MAX_VIEW_QUERY_BYTES, Page, PutSavedView, SavedView};
use nightshift_protocol::id::SavedViewId;
use serde::Deserialize;

use super::{examine_author, examine_label, page};
use crate::api::idempotency::Creating;
use crate::api::list::page_request;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath, Params, PathId};
use crate::shared::Shared;

/// Maximum number of views per owner.
const MAX_VIEWS: u32 = 200;
/// Maximum length of the name of a page.
const MAX_PAGE_CHARS: usize = 64;

impl PathId for SavedViewId {
    const NOT_FOUND: &'static str = "view.not_found";
}

/// The query of `GET /views`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    page: Option<String>,
    limit: Option<u32>,
    before: Option<String>,
}

/// Lists the caller's views and shared views, newest first. An anonymous caller gets only shared views.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    caller: Option<Extension<Caller>>,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<SavedView>>, ApiFailure> {
    let request = page_request(query.limit, query.before)?;
    // No owner has an empty name.
    let owner = caller.map(|Extension(caller)| caller.name).unwrap_or_default();
    let rows = shared.store.team.list_views(&owner, query.page.as_deref(), &request).await?;
    Ok(Json(page(&request, rows)))
}

/// Saves a view.
pub(crate) async fn add(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Creating { wish, creator }: Creating<PutSavedView>,
) -> Result<(StatusCode, Json<SavedView>), ApiFailure> {
    examine(&wish)?;
    let view = SavedView {
        id: SavedViewId::from_uuid(shared.new_uuid()),
        name: wish.name,
        page: wish.page,
        query: wish.query,
        owner: caller.name,
        shared: wish.shared,
        created_at: shared.clock.now(),
        edited_at: None,
    };
    creator.create(&shared, Creation::View { view: view.clone(), limit: MAX_VIEWS }, view).await
}

/// Changes a view.
pub(crate) async fn edit(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<SavedViewId>,
    Extension(caller): Extension<Caller>,
    Body(wish): Body<PutSavedView>,
) -> Result<Json<SavedView>, ApiFailure> {
    examine(&wish)?;
    let store = &shared.store.team;
    let view = store.load_view(&id).await?;
    examine_author(&caller, &view.owner, "view")?;
    let edited_at = Some(shared.clock.now());
    let view =
        SavedView { name: wish.name, page: wish.page, query: wish.query, shared: wish.shared, edited_at, ..view };
    let result = store.edit_view(view.clone()).await;
    shared.store_health.note_error(&result);
    result?;
    Ok(Json(view))
}

/// Deletes a view.
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<SavedViewId>,
    Extension(caller): Extension<Caller>,
) -> Result<StatusCode, ApiFailure> {
    let store = &shared.store.team;
    examine_author(&caller, &store.load_view(&id).await?.owner, "view")?;
    let result = store.delete_view(&id).await;
    shared.store_health.note_error(&result);
    result?;
    Ok(StatusCode::NO_CONTENT)
}

fn examine(wish: &PutSavedView) -> Result<(), ApiFailure> {
    examine_label(&wish.name, "view.invalid")?;
    let of_page = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '/');
    if wish.name.trim().is_empty()
        || wish.page.is_empty()
        || wish.page.len() > MAX_PAGE_CHARS
        || !wish.page.chars().all(of_page)
        || wish.query.len() > MAX_VIEW_QUERY_BYTES
        || wish.query.chars().any(char::is_control)
    {
        return Err(ApiFailure::bad(
            "view.invalid",
            format!(
                "a view has a name, a page of 1 to {MAX_PAGE_CHARS} lower-case letters, digits, `-`, `_` and `/`, and a \
                 query of at most {MAX_VIEW_QUERY_BYTES} bytes"
            ),
        ));
    }
    Ok(())
}
