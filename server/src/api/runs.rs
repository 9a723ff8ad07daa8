//! Reading runs: list, detail, log, steps.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use nightshift_engine::event::Event;
use nightshift_engine::store::{RunRecord, StepRecord};
use nightshift_protocol::api::{EventsPage, Page, RunDetail, RunSummary, RunView, StepView};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::cost::by_role;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::plan_difference::PlanDifference;
use nightshift_protocol::run::{RunStatus, StepStatus};
use serde::Deserialize;

use crate::api::etag::Version;
use crate::api::list::{PageQuery, cursor_failure, page, page_request};
use crate::api::long_poll::hold;
use crate::call_limits::CallLimits;
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::{IdPath, Params};
use crate::present::{event_view, run_summary, step_view, with_wall_time};
use crate::shared::Shared;
use crate::waiting::{Carrier, Reasons, Surroundings};
use crate::worker_registry::MAX_LISTED_WORKERS;

/// Maximum number of events per answer.
pub const MAX_EVENTS_PER_PAGE: u32 = 500;

/// The query of `GET /runs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    campaign: Option<CampaignId>,
    status: Option<RunStatus>,
    limit: Option<u32>,
    before: Option<String>,
}

/// Lists runs, newest first, or those of one campaign in the order of its tasks.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<RunSummary>>, ApiFailure> {
    let request = page_request(query.limit, query.before)?;
    if let Some(campaign) = &query.campaign {
        shared.store.campaigns.load_campaign(campaign).await?;
    }
    let records = shared.store.runs.list_runs(query.campaign.as_ref(), query.status, request.clone()).await;
    let records = records.map_err(cursor_failure)?;
    let items = records.into_iter().map(run_summary).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(page(&request, items, |run| run.id.to_string())))
}

/// Returns all details of one run, or 304 if the caller has this version.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<RunId>,
    headers: HeaderMap,
) -> Result<Response, ApiFailure> {
    let mut record = shared.store.runs.load_run(&id).await?;
    let mut steps = shared.store.runs.list_step_heads(&id).await?;
    steps.retain(|step| !step.status.is_final());
    let open_steps = step_views(&driving, &record, steps).await?;
    // The position of the state stands for the large view, which is not made for a caller that has it.
    let position = (record.revision, record.folded_seq, record.state.is_some());
    let state = record.state.take();
    let summary = run_summary(record)?;
    let version = Version::of(&(position, &summary, &open_steps))?;
    if let Some(unchanged) = version.unchanged(&headers) {
        return Ok(unchanged);
    }
    let view = match state {
        Some(state) if !state.is_null() => (shared.view)(&state)?,
        // Also a run that was cancelled before its first decision.
        _ => not_begun(&shared, &id).await?,
    };
    let cost = by_role(view.calls());
    let plan_differences = PlanDifference::of_versions(&view.plans);
    Ok(version.answer(RunDetail { summary, view, open_steps, cost, plan_differences }))
}

/// Returns the view of a run before its first decision.
async fn not_begun(shared: &Shared, run: &RunId) -> Result<RunView, ApiFailure> {
    let first = shared.store.runs.events_after(run, 0, 1).await?.into_iter().next();
    let Some(Event::RunCreated { input }) = first.map(|first| first.event) else {
        return Err(ApiFailure::internal("run.unreadable", "the run's log does not begin with its creation"));
    };
    let input: RunInput = serde_json::from_value(input)
        .map_err(|error| ApiFailure::internal("run.unreadable", format!("the run's input cannot be read: {error}")))?;
    Ok(RunView {
        task: input.task,
        prepared: None,
        plans: Vec::new(),
        attempts: Vec::new(),
        best_attempt: None,
        stop_reason: None,
        failed_calls: Vec::new(),
        session: None,
    })
}

/// Lists all steps of a run in the order of their scheduling.
pub(crate) async fn steps(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<RunId>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<StepView>>, ApiFailure> {
    let run = shared.store.runs.load_run(&id).await?;
    let steps = shared.store.runs.list_step_heads(&id).await?;
    let Page { items, next } = query.of_all(steps, |step| step.id.to_string())?;
    Ok(Json(Page { items: step_views(&driving, &run, items).await?, next }))
}

/// The query of `GET /runs/{id}/events`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    wait_ms: u64,
}

/// Returns the log after a position. Waits until there is an event or the run has ended.
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    State(limits): State<Arc<CallLimits>>,
    IdPath(id): IdPath<RunId>,
    Params(query): Params<EventsQuery>,
) -> Result<Json<EventsPage>, ApiFailure> {
    let look = || async {
        // Read the status first: if it says that the run has ended, the log read afterwards is complete.
        let status = shared.store.runs.run_status(&id).await?;
        let records = shared.store.runs.events_after(&id, query.after, MAX_EVENTS_PER_PAGE).await?;
        let events = records.iter().map(event_view).collect::<Result<Vec<_>, _>>()?;
        Ok((!events.is_empty() || status.is_final(), EventsPage { events, status }))
    };
    hold(&shared, &limits, driving.wake.bell(&id), query.wait_ms, look).await.map(Json)
}

pub(super) async fn step_views(
    driving: &Driving,
    run: &RunRecord,
    steps: Vec<StepRecord>,
) -> Result<Vec<StepView>, ApiFailure> {
    let Driving { shared, dispatch, .. } = driving;
    let waits = run.status == RunStatus::Running && steps.iter().any(|step| step.status == StepStatus::Scheduled);
    // Only a waiting step needs reasons.
    let reasons = if waits { reasons(shared, run, &steps).await? } else { Reasons::default() };
    let around = Surroundings {
        run: run.status,
        carrier: if waits { carrier(driving, run).await? } else { Carrier::Alive },
        agent_slots: shared.config.agent_slots,
        lease_ms: shared.config.lease_ms,
        own_worker_starts: dispatch.worker_registry.embedded_count() < shared.config.own_workers,
        reasons: &reasons,
        now: shared.clock.now(),
    };
    steps
        .into_iter()
        .map(|step| {
            let waiting_for = around.waiting_for(&step);
            step_view(step, waiting_for)
        })
        .collect()
}

/// Returns the server that carries the run on, according to the server leases. A lease outlives its server by some
/// heartbeats.
async fn carrier(driving: &Driving, run: &RunRecord) -> Result<Carrier, ApiFailure> {
    let shared = &driving.shared;
    let Some(owner) = &run.owner else {
        return Ok(if shared.config.drives { Carrier::Alive } else { Carrier::None });
    };
    if driving.server_lease.current().as_ref() == Some(owner) {
        return Ok(Carrier::Alive);
    }
    let (now, servers) = (shared.clock.now(), shared.store.servers.list_servers().await?);
    if servers.iter().any(|server| server.id == *owner && now < server.expires_at) {
        return Ok(Carrier::Alive);
    }
    let gone = servers.iter().find(|server| server.id == *owner);
    let another = shared.config.drives || servers.iter().any(|server| now < server.expires_at);
    Ok(Carrier::Gone { server: gone.map_or_else(|| owner.to_string(), |gone| gone.name.clone()), another })
}

async fn reasons(shared: &Shared, run: &RunRecord, steps: &[StepRecord]) -> Result<Reasons, ApiFailure> {
    let blocked = steps.iter().any(|step| step.blocked_on.is_some());
    let timed = steps.iter().any(|step| step.not_before.is_some());
    let mut reasons =
        Reasons { workers: shared.store.workers.list_workers(MAX_LISTED_WORKERS).await?, ..Reasons::default() };
    if blocked || timed {
        let campaign = shared.store.campaigns.load_campaign(&run.campaign).await?;
        if blocked {
            let elapsed_ms = shared.clock.now().since_ms(campaign.created_at);
            reasons.budget = with_wall_time(shared.store.budgets.load_budget(&run.campaign).await?, elapsed_ms);
        }
        reasons.schedule = campaign.schedule;
    }
    Ok(reasons)
}
