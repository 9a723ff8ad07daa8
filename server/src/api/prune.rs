//! `POST /prune`: deletes what is over since long ago, in chunks, within the time of one call.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::{Prune, PruneDone};
use tokio::time::Instant;

use crate::actor::Actor;
use crate::app::App;
use crate::error::ApiFailure;
use crate::extract::Body;
use crate::retention_loop::{MAX_PRUNED_CAMPAIGNS, MIN_OLDER_THAN_MS, Prunes};

/// How long one call deletes: then it says that there is more.
const LONGEST: Duration = Duration::from_secs(10);

/// Deletes finished campaigns whose last run ended long ago and artifacts that nothing names, or says which campaigns
/// it would be.
pub(crate) async fn prune(
    State(app): State<Arc<App>>,
    actor: Actor,
    Body(request): Body<Prune>,
) -> Result<Json<PruneDone>, ApiFailure> {
    if request.older_than_ms < MIN_OLDER_THAN_MS {
        return Err(ApiFailure::bad(
            "request.invalid",
            format!(
                "`older_than_ms` must be at least {MIN_OLDER_THAN_MS}: artifacts of an upload that goes on are named by \
                 nothing yet"
            ),
        ));
    }
    let before = Prunes::before(app.clock.now(), request.older_than_ms);
    if request.dry_run {
        let campaigns = app.store.campaigns_to_prune(before, MAX_PRUNED_CAMPAIGNS + 1).await?;
        let most = usize::try_from(MAX_PRUNED_CAMPAIGNS).unwrap_or(usize::MAX);
        let more = campaigns.len() > most;
        return Ok(Json(PruneDone {
            campaigns: campaigns.into_iter().take(most).collect(),
            rows: 0,
            artifacts: 0,
            more,
        }));
    }
    let result = Prunes::new(&app, before).until(Instant::now() + LONGEST).await;
    app.trouble.note_error(&result);
    let done = result?;
    tracing::info!(
        campaigns = done.campaigns.len(),
        rows = done.rows,
        artifacts = done.artifacts,
        by = actor.name(),
        "what was over since long ago was deleted"
    );
    Ok(Json(done))
}
