//! The leaderboard of models.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::{ModelBoard, Page};

use crate::api::attempts::{Pairs, filter};
use crate::api::list::{PageQuery, derived_cursor};
use crate::attempt_index::Index;
use crate::error::ApiFailure;
use crate::extract::Params;

/// Returns models by strategy. The filter selects the attempts that count.
pub(crate) async fn list(
    State(index): State<Arc<Index>>,
    Params(mut query): Params<Pairs>,
) -> Result<Json<Page<ModelBoard>>, ApiFailure> {
    let page = PageQuery::take(&mut query)?;
    let filter = filter(query)?;
    let items = index.current().await?.model_boards(&filter).await?;
    Ok(Json(page.of_moving(items, |board: &ModelBoard| derived_cursor(&[&board.model, &board.strategy]))?))
}
