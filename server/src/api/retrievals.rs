//! Notes and lessons that the model calls of a run received.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_engine::store::RetrievalRecord;
use nightshift_protocol::api::{Page, Retrieval};
use nightshift_protocol::id::RunId;
use serde::Deserialize;

use crate::api::list::{page, page_request};
use crate::error::ApiFailure;
use crate::extract::{IdPath, Params};
use crate::shared::Shared;

/// The query of `GET /runs/{id}/retrievals`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    attempt: Option<u32>,
    limit: Option<u32>,
    before: Option<String>,
}

/// Lists what steps of a run received, by step key.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RunId>,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<Retrieval>>, ApiFailure> {
    let request = page_request(query.limit, query.before)?;
    let store = &shared.store.knowledge;
    let records = store.list_retrievals(&id, query.attempt, request.before.as_deref(), request.limit).await?;
    let items = records.into_iter().map(|record| read(&id, record)).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(page(&request, items, |retrieval| retrieval.step_key.clone())))
}

fn read(run: &RunId, record: RetrievalRecord) -> Result<Retrieval, ApiFailure> {
    let RetrievalRecord { step_key, items, at } = record;
    let retrieved = serde_json::from_value(items).map_err(|error| {
        let message =
            format!("the notes and lessons of step `{step_key}` of {run} cannot be read by this release: {error}");
        ApiFailure::internal("run.unreadable", message)
    })?;
    Ok(Retrieval { step_key, at, retrieved })
}
