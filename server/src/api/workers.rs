//! Workers: registration, claims, heartbeats, reports.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use nightshift_engine::store::{ClaimRequest, Reported, StepRecord, WorkerRecord};
use nightshift_protocol::api::{
    Claim, Claimed, Heartbeat, HeartbeatReply, LeasedStep, Page, RegisterWorker, Report, ReportReply, TryOutcome,
    WorkerRegistered, WorkerView,
};
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::machine::Executor;
use nightshift_protocol::step::{StepFailure, StepInput, StepKind};

use crate::api::long_poll::hold;
use crate::app::App;
use crate::commit::CommitError;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath};
use crate::present::worker_view;

/// Workers in a list.
pub const MAX_LISTED_WORKERS: u32 = 1_000;
/// Longest name of a worker.
const MAX_WORKER_NAME_CHARS: usize = 200;
/// Longest version text of a worker.
const MAX_VERSION_CHARS: usize = 64;
/// Routes in one claim.
const MAX_CLAIM_ROUTES: usize = 64;
/// Steps of one route in one claim.
const MAX_CLAIM_SLOTS: u32 = 1_024;
/// Longest route.
const MAX_ROUTE_CHARS: usize = 64;
/// Leases in one heartbeat.
const MAX_LEASES: usize = 4_096;

/// Workers, last heard of first.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<Json<Page<WorkerView>>, ApiFailure> {
    let records = app.store.list_workers(MAX_LISTED_WORKERS).await?;
    Ok(Json(Page { items: records.into_iter().map(worker_view).collect::<Result<_, _>>()?, next: None }))
}

/// Makes a worker known.
pub(crate) async fn register(
    State(app): State<Arc<App>>,
    Body(request): Body<RegisterWorker>,
) -> Result<(StatusCode, Json<WorkerRegistered>), ApiFailure> {
    let name_chars = request.name.chars().count();
    if !(1..=MAX_WORKER_NAME_CHARS).contains(&name_chars) || request.version.chars().count() > MAX_VERSION_CHARS {
        return Err(ApiFailure::bad(
            "request.invalid",
            format!(
                "a worker has a name of 1 to {MAX_WORKER_NAME_CHARS} characters and a version of at most {MAX_VERSION_CHARS}"
            ),
        ));
    }
    let worker = WorkerId::from_uuid(app.new_uuid());
    let offers = serde_json::to_value(&request.offers)
        .map_err(|error| ApiFailure::bad("request.invalid", format!("the offers cannot be stored: {error}")))?;
    let record = WorkerRecord {
        id: worker.clone(),
        name: request.name,
        embedded: request.embedded,
        offers,
        version: request.version,
        last_seen_at: app.clock.now(),
        leases: 0,
    };
    tracing::info!(worker.id = %worker, worker.name = %record.name, "a worker introduced itself");
    let result = app.store.register_worker(record).await;
    app.trouble.note(&result);
    result?;
    let registered = WorkerRegistered { worker, lease_ms: app.config.lease_ms, heartbeat_ms: app.config.heartbeat_ms };
    Ok((StatusCode::CREATED, Json(registered)))
}

/// Leases steps to a worker; waits for some to be ready.
pub(crate) async fn claim(
    State(app): State<Arc<App>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(claim): Body<Claim>,
) -> Result<Json<Claimed>, ApiFailure> {
    let free = claimable(claim.free)?;
    let look = || async {
        if app.shutdown.is_cancelled() {
            return Ok((false, Vec::new()));
        }
        let at = app.clock.now();
        let request = ClaimRequest { worker: worker.clone(), free: free.clone(), at, expires_at: app.lease_end(at) };
        let result = app.store.claim(request).await;
        app.trouble.note_error(&result);
        let steps = result?;
        Ok((!steps.is_empty(), steps))
    };
    let records = hold(&app, app.wake.work(), claim.wait_ms, look).await?;
    let mut steps = Vec::with_capacity(records.len());
    for record in records {
        app.wake.ring(&record.run);
        match serde_json::from_value::<StepInput>(record.input.clone()) {
            Ok(input) if input.kind().as_str() == record.kind => steps.push(leased(record, input)),
            Ok(_) => refuse(&app, &record, "it belongs to another kind of step").await?,
            Err(error) => refuse(&app, &record, &error.to_string()).await?,
        }
    }
    Ok(Json(Claimed { steps }))
}

/// The routes that are asked for. Steps of agents never leave the server: they see model replies before anyone judged
/// them, and their results steer the run.
fn claimable(free: Vec<(String, u32)>) -> Result<Vec<(String, u32)>, ApiFailure> {
    if free.len() > MAX_CLAIM_ROUTES || free.iter().any(|(route, _)| route.len() > MAX_ROUTE_CHARS) {
        return Err(ApiFailure::bad(
            "request.invalid",
            format!("a claim names at most {MAX_CLAIM_ROUTES} routes of at most {MAX_ROUTE_CHARS} characters"),
        ));
    }
    if let Some((route, _)) = free.iter().find(|(route, _)| !route.starts_with("worker/")) {
        return Err(ApiFailure::forbidden(
            "auth.route_not_allowed",
            format!("workers cannot claim the route `{route}`: theirs begin with `worker/`"),
        ));
    }
    Ok(free.into_iter().filter(|(_, n)| *n > 0).map(|(route, n)| (route, n.min(MAX_CLAIM_SLOTS))).collect())
}

fn leased(record: StepRecord, input: StepInput) -> LeasedStep {
    LeasedStep {
        step: record.id,
        epoch: record.epoch,
        run: record.run,
        key: record.key,
        route: record.route,
        input,
        timeout_ms: record.timeout_ms,
    }
}

/// A step whose input this release cannot read would come back again and again.
async fn refuse(app: &App, record: &StepRecord, why: &str) -> Result<(), ApiFailure> {
    let failure =
        StepFailure::fatal("step.unreadable_input", format!("this release cannot read the step's input: {why}"));
    app.commit(record, record.epoch, TryOutcome::Failed { failure }).await.map(|_| ()).map_err(not_committed)
}

/// Extends all leases of a worker, and tells it what to stop.
pub(crate) async fn heartbeat(
    State(app): State<Arc<App>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(heartbeat): Body<Heartbeat>,
) -> Result<Json<HeartbeatReply>, ApiFailure> {
    if heartbeat.leases.len() > MAX_LEASES {
        return Err(ApiFailure::bad("request.invalid", format!("a heartbeat carries at most {MAX_LEASES} leases")));
    }
    let at = app.clock.now();
    let result = app.store.heartbeat(&worker, &heartbeat.leases, at, app.lease_end(at)).await;
    app.trouble.note(&result);
    let outcome = result?;
    Ok(Json(HeartbeatReply { lost: outcome.lost, cancelled: outcome.cancelled }))
}

/// Commits how a try ended.
pub(crate) async fn report(
    State(app): State<Arc<App>>,
    IdPath(id): IdPath<StepId>,
    Body(report): Body<Report>,
) -> Result<Json<ReportReply>, ApiFailure> {
    let step = app.store.load_step(&id).await?;
    if StepKind::parse(&step.kind).is_some_and(|kind| kind.executor() == Executor::Agent) {
        return Err(ApiFailure::forbidden(
            "auth.route_not_allowed",
            "workers cannot report steps of agents: those are carried out by the server",
        ));
    }
    if step.worker.as_ref() != Some(&report.worker) {
        return Ok(Json(ReportReply::LeaseLost));
    }
    let reply = match app.commit(&step, report.epoch, report.result).await.map_err(not_committed)? {
        Reported::Committed => ReportReply::Committed,
        Reported::LeaseLost => ReportReply::LeaseLost,
    };
    if reply == ReportReply::LeaseLost {
        tracing::info!(step.id = %id, worker.id = %report.worker, "a late report was dropped");
    }
    Ok(Json(reply))
}

fn not_committed(error: CommitError) -> ApiFailure {
    match error {
        CommitError::Mismatch { .. } | CommitError::Unwritable(_) => {
            ApiFailure::bad("request.output_mismatch", error.to_string())
        }
        CommitError::Store(error) => error.into(),
    }
}
