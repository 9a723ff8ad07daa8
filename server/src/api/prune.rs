//! `/prune`: lists old data, or deletes it in chunks within the time of one call.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::{Prune, PruneDone};
use serde::Deserialize;
use tokio::time::Instant;

use crate::actor::Actor;
use crate::error::ApiFailure;
use crate::extract::{Body, Params};
use crate::retention_loop::{MAX_PRUNED_CAMPAIGNS, MIN_OLDER_THAN_MS, Prunes};
use crate::shared::Shared;

/// Maximum duration of the deletion in one call. The answer says whether more is left.
const LONGEST: Duration = Duration::from_secs(10);

/// The query of `GET /prune`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PruneQuery {
    older_than_ms: u64,
}

/// Returns what [`prune`] would delete.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Params(wish): Params<PruneQuery>,
) -> Result<Json<PruneDone>, ApiFailure> {
    examine(wish.older_than_ms).map_err(|message| ApiFailure::bad("request.invalid_query", message))?;
    would_prune(&shared, wish.older_than_ms).await
}

/// Deletes finished campaigns whose last run ended long ago, and unreferenced artifacts, or only lists the campaigns.
pub(crate) async fn prune(
    State(shared): State<Arc<Shared>>,
    actor: Actor,
    Body(request): Body<Prune>,
) -> Result<Json<PruneDone>, ApiFailure> {
    examine(request.older_than_ms).map_err(|message| ApiFailure::bad("request.invalid", message))?;
    if request.dry_run {
        return would_prune(&shared, request.older_than_ms).await;
    }
    let before = Prunes::before(shared.clock.now(), request.older_than_ms);
    let result = Prunes::new(&shared, before).until(Instant::now() + LONGEST).await;
    shared.store_health.note_error(&result);
    let done = result?;
    tracing::info!(
        campaigns = done.campaigns.len(),
        rows = done.rows,
        artifacts = done.artifacts,
        by = actor.name(),
        "old data was deleted"
    );
    Ok(Json(done))
}

fn examine(older_than_ms: u64) -> Result<(), String> {
    if older_than_ms < MIN_OLDER_THAN_MS {
        return Err(format!(
            "`older_than_ms` must be at least {MIN_OLDER_THAN_MS}: artifacts of a running upload have no references yet"
        ));
    }
    Ok(())
}

async fn would_prune(shared: &Shared, older_than_ms: u64) -> Result<Json<PruneDone>, ApiFailure> {
    let before = Prunes::before(shared.clock.now(), older_than_ms);
    let campaigns = shared.store.retention.campaigns_to_prune(before, MAX_PRUNED_CAMPAIGNS + 1).await?;
    let most = usize::try_from(MAX_PRUNED_CAMPAIGNS).unwrap_or(usize::MAX);
    let more = campaigns.len() > most;
    Ok(Json(PruneDone { campaigns: campaigns.into_iter().take(most).collect(), rows: 0, artifacts: 0, more }))
}
