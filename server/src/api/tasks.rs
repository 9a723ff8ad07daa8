//! The leaderboard of tasks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::{Page, TaskBoard};

use crate::api::attempts::{Pairs, filter};
use crate::api::list::{PageQuery, derived_cursor};
use crate::attempt_index::Index;
use crate::error::ApiFailure;
use crate::extract::Params;

/// Returns tasks by device, with their best attempts. The filter selects the attempts that count.
pub(crate) async fn list(
    State(index): State<Arc<Index>>,
    Params(mut query): Params<Pairs>,
) -> Result<Json<Page<TaskBoard>>, ApiFailure> {
    let page = PageQuery::take(&mut query)?;
    let filter = filter(query)?;
    let items = index.current().await?.task_boards(&filter).await?;
    let cursor = |board: &TaskBoard| {
        derived_cursor(&[&board.task, board.target.as_str(), board.device.as_deref().unwrap_or_default()])
    };
    Ok(Json(page.of_all(items, cursor)?))
}
