//! Full-text search.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::{SearchPage, SearchQuery};

use crate::api::attempts::{Pairs, check_cursor, invalid};
use crate::attempt_index::Index;
use crate::error::ApiFailure;
use crate::extract::Params;

/// Default number of hits per page.
const DEFAULT_HITS: u32 = 20;

/// Finds texts with these words, the newest first.
pub(crate) async fn find(
    State(index): State<Arc<Index>>,
    Params(query): Params<Pairs>,
) -> Result<Json<SearchPage>, ApiFailure> {
    let mut query = SearchQuery::from_pairs(query).map_err(|error| invalid(&error))?;
    query.limit = Some(query.limit.unwrap_or(DEFAULT_HITS));
    check_cursor(query.before.as_deref())?;
    Ok(Json(index.current().await?.search(&query).await?))
}
