//! Campaigns: list, detail, control.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use nightshift_engine::store::{PageRequest, RunRecord, StoreError};
use nightshift_protocol::api::{
    CampaignDetail, CampaignPage, CampaignQuery, CampaignResults, Control, Controlled, RunSummary, SetPriority,
};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;
use serde::Deserialize;

use crate::actor::Actor;
use crate::api::attempts::{Pairs, check_cursor, invalid};
use crate::api::create_campaign::MAX_TASKS;
use crate::api::etag::Version;
use crate::api::list::DEFAULT_PAGE_ROWS;
use crate::api::run_control::{examine_priority, to_the_end, transition};
use crate::attempt_index::Index;
use crate::campaign_list::Campaigns;
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath, Params};
use crate::live::Live;
use crate::present::{campaign_spec, campaign_summary, run_summary, with_wall_time};
use crate::shared::Shared;

/// Lists campaigns that match a filter, with the total number. Sorted newest first by default.
pub(crate) async fn list(
    State(campaigns): State<Arc<Campaigns>>,
    Params(query): Params<Pairs>,
) -> Result<Json<CampaignPage>, ApiFailure> {
    let query = CampaignQuery::from_pairs(query).map_err(|error| invalid(&error))?;
    check_cursor(query.before.as_deref())?;
    let limit = query.limit.unwrap_or(DEFAULT_PAGE_ROWS);
    Ok(Json(campaigns.page(&query, limit).await?))
}

/// The query of `GET /campaigns/{id}/results`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultsQuery {
    from: Option<u64>,
    to: Option<u64>,
}

/// Returns the results of a campaign over all of its attempts.
pub(crate) async fn results(
    State(shared): State<Arc<Shared>>,
    State(index): State<Arc<Index>>,
    IdPath(id): IdPath<CampaignId>,
    Params(query): Params<ResultsQuery>,
) -> Result<Json<CampaignResults>, ApiFailure> {
    let places = query.from.unwrap_or(1)..=query.to.unwrap_or(u64::MAX);
    if places.is_empty() {
        return Err(ApiFailure::bad("request.invalid_query", "`from` must not be above `to`"));
    }
    let runs = shared.store.campaigns.load_campaign(&id).await?.runs.total();
    Ok(Json(index.current().await?.campaign_results(&id, runs, places).await?))
}

/// Returns one campaign with its runs, in the order of its tasks, or 304 if the caller has this version.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    State(campaigns): State<Arc<Campaigns>>,
    IdPath(id): IdPath<CampaignId>,
    headers: HeaderMap,
) -> Result<Response, ApiFailure> {
    let detail = campaign_detail(&shared, &campaigns, &id).await?;
    // The elapsed time is not part of the version: it would change with every call.
    let version = Version::of(&detail)?;
    Ok(version.unchanged(&headers).unwrap_or_else(|| version.answer(with_elapsed_time(&shared, detail))))
}

/// Returns one campaign. Its budget has no elapsed time yet: see [`with_elapsed_time`].
pub(super) async fn campaign_detail(
    shared: &Shared,
    campaigns: &Campaigns,
    id: &CampaignId,
) -> Result<CampaignDetail, ApiFailure> {
    let record = shared.store.campaigns.load_campaign(id).await?;
    let runs = shared.store.runs.list_runs(Some(id), None, all_runs()).await?;
    let mut summary = campaign_summary(&record)?;
    summary.priority = common_priority(&runs).unwrap_or(summary.priority);
    campaigns.add_sums(std::slice::from_mut(&mut summary)).await?;
    Ok(CampaignDetail {
        summary,
        spec: campaign_spec(&record)?,
        runs: runs.into_iter().map(run_summary).collect::<Result<_, _>>()?,
        budget: shared.store.budgets.load_budget(id).await?,
    })
}

/// Adds the time since the campaign's creation, until its last run ended.
pub(super) fn with_elapsed_time(shared: &Shared, mut detail: CampaignDetail) -> CampaignDetail {
    let until = ended_at(&detail.runs).unwrap_or_else(|| shared.clock.now());
    detail.budget = with_wall_time(detail.budget, until.since_ms(detail.summary.created_at));
    detail
}

/// Returns the priority of the unfinished runs, if they share one.
fn common_priority(runs: &[RunRecord]) -> Option<i32> {
    let mut open = runs.iter().filter(|run| !run.status.is_final()).map(|run| run.priority);
    let first = open.next()?;
    open.all(|priority| priority == first).then_some(first)
}

/// Returns the end of the last run, or none while a run is unfinished.
fn ended_at(runs: &[RunSummary]) -> Option<TimestampMs> {
    let ends: Option<Vec<TimestampMs>> = runs.iter().map(|run| run.finished_at).collect();
    ends?.into_iter().max()
}

/// Pauses, resumes or cancels every unfinished run, also when the client does not wait for the answer.
pub(crate) async fn control(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
    Body(control): Body<Control>,
) -> Result<Json<Controlled>, ApiFailure> {
    shared.store.campaigns.load_campaign(&id).await?;
    let transition = transition(control.action);
    to_the_end(async move {
        let mut controlled = Controlled { runs: Vec::new() };
        for run in shared.store.runs.list_runs(Some(&id), None, all_runs()).await? {
            if run.status.is_final() {
                continue;
            }
            if run.status.next(transition) == Ok(run.status) {
                controlled.runs.push((run.id, run.status));
                continue;
            }
            match driving.control(&run.id, transition, actor.name()).await {
                Ok(status) => controlled.runs.push((run.id, status)),
                // It ended in the meantime, or it is being cancelled and cannot be paused or resumed.
                Err(StoreError::Illegal(illegal)) => {
                    if !illegal.from.is_final() {
                        controlled.runs.push((run.id, illegal.from));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Json(controlled))
    })
    .await
}

/// Error code for changes of a finished run.
const RUN_OVER: &str = "run.over";

/// Changes the priority of every unfinished run, also when the client does not wait for the answer. Refuses if there is
/// none.
pub(crate) async fn prioritize(
    State(shared): State<Arc<Shared>>,
    State(live): State<Arc<Live>>,
    IdPath(id): IdPath<CampaignId>,
    Body(SetPriority { priority }): Body<SetPriority>,
) -> Result<StatusCode, ApiFailure> {
    examine_priority(priority)?;
    shared.store.campaigns.load_campaign(&id).await?;
    to_the_end(async move {
        let mut moved = 0_usize;
        for run in shared.store.runs.list_runs(Some(&id), None, all_runs()).await? {
            if run.status.is_final() {
                continue;
            }
            if run.priority != priority {
                let result = shared.store.run_control.set_priority(&run.id, priority, shared.clock.now()).await;
                // It may have ended in between.
                if result.as_ref().is_err_and(|error| error.code() == RUN_OVER) {
                    continue;
                }
                shared.store_health.note_error(&result);
                result?;
            }
            moved += 1;
        }
        if moved == 0 {
            let message = format!("every run of {id} is over: a priority has no effect any more");
            return Err(ApiFailure::new(StatusCode::CONFLICT, RUN_OVER, message));
        }
        live.campaign_touched(&id);
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

fn all_runs() -> PageRequest {
    PageRequest { limit: u32::try_from(MAX_TASKS).unwrap_or(u32::MAX), before: None }
}
