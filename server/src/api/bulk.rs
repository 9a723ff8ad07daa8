//! `POST /runs/bulk`: one action on every run that matches a filter. A refusal by one run does not affect the others.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use nightshift_engine::store::{PageRequest, RunRecord, StoreError};
use nightshift_protocol::api::{Bulk, BulkAction, BulkDone, RunDigest, RunFilter};
use nightshift_protocol::run::{RunStatus, RunTransition};

use crate::actor::Actor;
use crate::api::idempotency::{digest, idempotency_key};
use crate::api::run_control::{examine_priority, examine_signal, to_the_end};
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::Body;
use crate::shared::Shared;

/// Maximum number of changed runs per call.
pub const MAX_BULK_RUNS: usize = 500;
/// Runs read per page.
const PAGE_ROWS: u32 = 500;
/// Maximum number of examined runs per call. Further runs are left to the next call.
const MAX_EXAMINED: usize = 50_000;

/// Acts on the matching runs, or only lists them, also when the client does not wait for the answer.
pub(crate) async fn act(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    actor: Actor,
    headers: HeaderMap,
    Body(bulk): Body<Bulk>,
) -> Result<Json<BulkDone>, ApiFailure> {
    let key = match idempotency_key(&headers)? {
        Some(key) => Some((key, digest(&bulk)?)),
        None => None,
    };
    match &bulk.action {
        BulkAction::Prioritize { priority } => examine_priority(*priority)?,
        BulkAction::Signal { signal } => examine_signal(signal)?,
        BulkAction::Pause | BulkAction::Resume | BulkAction::Cancel | BulkAction::Retry => {}
    }
    if let Some(campaign) = &bulk.filter.campaign {
        shared.store.campaigns.load_campaign(campaign).await?;
    }
    to_the_end(async move {
        let (runs, more) = find(&shared, &bulk.filter, &bulk.action).await?;
        let mut answer = BulkDone { done: Vec::new(), refused: Vec::new(), more };
        for run in runs {
            if bulk.dry_run {
                answer.done.push((run.id, run.status));
                continue;
            }
            match apply(&driving, &run, &bulk.action, &actor, key.as_ref()).await {
                Ok(status) => answer.done.push((run.id, status)),
                // The database as a whole fails, so the other runs would fail too.
                Err(error) if error.is_transient() && answer.done.is_empty() => return Err(error.into()),
                Err(error) => answer.refused.push((run.id, error.code().to_owned(), error.to_string())),
            }
        }
        tracing::info!(
            done = answer.done.len(),
            refused = answer.refused.len(),
            more,
            dry_run = bulk.dry_run,
            by = actor.name(),
            "a bulk call was carried out"
        );
        Ok(Json(answer))
    })
    .await
}

/// Returns the matching runs, and whether there are more.
///
/// Runs in the target status are skipped, so repeating the call continues with the others. Signals and priorities do
/// not show in a run's status: with more runs than one call handles, callers have to narrow the filter.
async fn find(shared: &Shared, filter: &RunFilter, action: &BulkAction) -> Result<(Vec<RunRecord>, bool), StoreError> {
    let mut found = Vec::new();
    let mut examined = 0;
    let mut before = None;
    loop {
        let page = PageRequest { limit: PAGE_ROWS, before: before.take() };
        let rows = shared.store.runs.list_runs(filter.campaign.as_ref(), filter.status, page).await?;
        let full = rows.len() >= usize::try_from(PAGE_ROWS).unwrap_or(usize::MAX);
        before = rows.last().map(|run| run.id.to_string());
        examined += rows.len();
        for run in rows {
            if !fits(&run, filter, action) {
                continue;
            }
            if found.len() == MAX_BULK_RUNS {
                return Ok((found, true));
            }
            found.push(run);
        }
        if !full {
            return Ok((found, false));
        }
        if examined >= MAX_EXAMINED {
            return Ok((found, true));
        }
    }
}

/// Returns whether the action applies to this run.
fn fits(run: &RunRecord, filter: &RunFilter, action: &BulkAction) -> bool {
    let concerns = match action {
        // Retry is for failed runs; all other actions are for unfinished runs.
        BulkAction::Retry => run.status == RunStatus::Failed || filter.status.is_some(),
        _ => !run.status.is_final() || filter.status.is_some(),
    };
    let undone = match action {
        BulkAction::Pause => run.status != RunStatus::Paused,
        BulkAction::Resume => run.status != RunStatus::Running,
        BulkAction::Cancel => !matches!(run.status, RunStatus::Cancelling | RunStatus::Cancelled),
        BulkAction::Retry | BulkAction::Prioritize { .. } | BulkAction::Signal { .. } => true,
    };
    let is_task = |task: &String| {
        serde_json::from_value::<RunDigest>(run.digest.clone()).is_ok_and(|digest| digest.task == *task)
    };
    concerns
        && undone
        && filter.status.is_none_or(|status| run.status == status)
        && filter.created_before.is_none_or(|before| run.created_at < before)
        && filter.task.as_ref().is_none_or(is_task)
}

async fn apply(
    driving: &Driving,
    run: &RunRecord,
    action: &BulkAction,
    actor: &Actor,
    key: Option<&(String, String)>,
) -> Result<RunStatus, StoreError> {
    let (runs, at) = (&driving.shared.store.run_control, driving.shared.clock.now());
    let by = actor.name();
    match action {
        BulkAction::Pause => driving.control(&run.id, RunTransition::Pause, by).await,
        BulkAction::Resume => driving.control(&run.id, RunTransition::Resume, by).await,
        BulkAction::Cancel => driving.control(&run.id, RunTransition::Cancel, by).await,
        BulkAction::Retry => runs.retry_run(&run.id, None, Some(by), at).await.map(|_| RunStatus::Running),
        BulkAction::Prioritize { priority } => runs.set_priority(&run.id, *priority, at).await.map(|()| run.status),
        BulkAction::Signal { signal } => {
            // Each run gets the signal once.
            let key = key.map(|(key, digest)| (format!("{key}:{}", run.id), digest.clone()));
            runs.signal_run(&run.id, signal.clone(), Some(by), key, at).await.map(|()| run.status)
        }
    }
}
