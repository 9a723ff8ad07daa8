//! `GET /servers`: the server leases on this database.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::{Page, ServerView};

use crate::api::list::PageQuery;
use crate::error::ApiFailure;
use crate::extract::Params;
use crate::shared::Shared;

/// Lists servers, newest first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<ServerView>>, ApiFailure> {
    let now = shared.clock.now();
    let items = shared.store.servers.list_servers().await?.into_iter().map(|server| ServerView {
        alive: now < server.expires_at,
        id: server.id,
        name: server.name,
        version: server.version,
        address: server.address,
        started_at: server.started_at,
    });
    Ok(Json(query.of_all(items.collect(), |server| server.id.to_string())?))
}
