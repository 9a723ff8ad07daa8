//! Workers: registration, claims, heartbeats, reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use nightshift_engine::store::{ClaimRequest, Creation, ReadingRecord, Reported, StepRecord, StoreError, WorkerRecord};
use nightshift_protocol::api::{
    Claim, Claimed, Drain, FreeSlots, Heartbeat, HeartbeatReply, LeasedStep, MAX_WAIT_MS, Page, QuarantinedDevice,
    RegisterWorker, Report, ReportReply, ReportResult, TryOutcome, WorkerRegistered, WorkerView,
};
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::machine::{Executor, Offers};
use nightshift_protocol::step::{StepFailure, StepInput, StepKind};
use nightshift_protocol::trace::TraceParent;
use tokio::time::Instant;

use crate::api::idempotency::Creating;
use crate::api::list::PageQuery;
use crate::app::App;
use crate::caller::Caller;
use crate::commit::{CommitError, Reporter};
use crate::dispatch::Taker;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath, Params};
use crate::present::worker_view;
use crate::waiting::silent_after_ms;
use crate::worker_registry::MAX_LISTED_WORKERS;

/// Maximum length of a worker's name.
const MAX_WORKER_NAME_CHARS: usize = 200;
/// Maximum length of a worker's version.
const MAX_VERSION_CHARS: usize = 64;
/// Maximum number of devices of a worker.
const MAX_DEVICES: usize = 64;
/// Maximum number of parallel steps of a worker, without a device or on one device.
const MAX_SLOTS: u32 = 1_024;
/// Maximum number of labels of a worker.
const MAX_LABELS: usize = 64;
/// Maximum number of leases per heartbeat.
const MAX_LEASES: usize = 4_096;

/// Lists workers, most recently seen first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<WorkerView>>, ApiFailure> {
    Ok(Json(query.of_moving(app.worker_views().await?, |worker| worker.id.to_string())?))
}

impl App {
    /// Returns workers, most recently seen first.
    pub(super) async fn worker_views(&self) -> Result<Vec<WorkerView>, ApiFailure> {
        let records = self.store.workers.list_workers(MAX_LISTED_WORKERS).await?;
        let stored = self.store.watch.list_readings().await?;
        let mut stored: HashMap<WorkerId, ReadingRecord> =
            stored.into_iter().map(|reading| (reading.worker.clone(), reading)).collect();
        let (now, silent_ms) = (self.clock.now(), silent_after_ms(self.config.lease_ms));
        let view = |record: WorkerRecord| {
            let silent = now.since_ms(record.last_seen_at) > silent_ms;
            let reading = self.worker_registry.reading_of(&record.id, stored.remove(&record.id));
            worker_view(record, silent, reading)
        };
        records.into_iter().map(view).collect()
    }
}

/// Registers a worker.
pub(crate) async fn register(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Creating { wish: request, creator }: Creating<RegisterWorker>,
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
    examine(&request.offers)?;
    let worker = WorkerId::from_uuid(app.new_uuid());
    let offers = serde_json::to_value(&request.offers)
        .map_err(|error| ApiFailure::bad("request.invalid", format!("the offers cannot be stored: {error}")))?;
    let mut record = WorkerRecord {
        id: worker.clone(),
        name: request.name,
        embedded: caller.embedded,
        offers,
        version: request.version,
        last_seen_at: app.clock.now(),
        leases: 0,
        server: if caller.embedded { app.server_lease.current() } else { None },
        draining: false,
    };
    let registered = WorkerRegistered { worker, lease_ms: app.config.lease_ms, heartbeat_ms: app.config.heartbeat_ms };
    let answer = creator.create(&app, Creation::Worker(record.clone()), registered).await?;
    let worker = answer.1.worker.clone();
    record.id = worker.clone();
    tracing::info!(worker.id = %worker, worker.name = %record.name, "a worker registered");
    let offers = Arc::new(request.offers);
    app.worker_registry.registered(&record, Arc::clone(&offers));
    if offers.devices.iter().any(|device| device.uuid.is_some()) {
        let quarantined = quarantined(&offers);
        app.take_in_quarantine(&worker, &record.name, &offers, &quarantined).await?;
    }
    Ok(answer)
}

/// Returns the quarantined devices among the offers.
fn quarantined(offers: &Offers) -> Vec<QuarantinedDevice> {
    let devices = offers.devices.iter();
    devices
        .filter_map(|device| Some(QuarantinedDevice { device: device.index, quarantine: device.quarantine.clone()? }))
        .collect()
}

/// Limits the size of the offers, because a claim is built from them.
fn examine(offers: &Offers) -> Result<(), ApiFailure> {
    let invalid = |message: String| Err(ApiFailure::bad("request.invalid", message));
    if offers.devices.len() > MAX_DEVICES || offers.labels.len() > MAX_LABELS {
        return invalid(format!("a worker offers at most {MAX_DEVICES} devices and {MAX_LABELS} labels"));
    }
    if offers.cpu_slots > MAX_SLOTS || offers.devices.iter().any(|device| device.shared_slots > MAX_SLOTS) {
        return invalid(format!("a worker carries out at most {MAX_SLOTS} steps at once, on each device too"));
    }
    let mut numbers: Vec<u32> = offers.devices.iter().map(|device| device.index).collect();
    numbers.sort_unstable();
    if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
        return invalid("two devices of a worker have the same number".to_owned());
    }
    Ok(())
}

/// Leases steps to a worker. Waits until some are ready.
pub(crate) async fn claim(
    State(app): State<Arc<App>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(claim): Body<Claim>,
) -> Result<Json<Claimed>, ApiFailure> {
    let until = Instant::now() + Duration::from_millis(claim.wait_ms.min(MAX_WAIT_MS));
    let known = app.worker_registry.find(&*app.store.workers, &worker).await?;
    app.worker_registry.mark_seen(&worker);
    if known.draining {
        return Ok(Json(Claimed { steps: Vec::new(), draining: true, held_ms: 0 }));
    }
    let taker = Taker::machine(&known.offers, &claim.free);
    let (steps, held) = app.wait_for_steps(&worker, &taker, until).await?;
    let steps = hand_over(&app, steps).await?;
    let held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(Claimed { draining: steps.is_empty() && app.worker_registry.is_draining(&worker), steps, held_ms }))
}

/// Returns the steps in the form for their worker.
async fn hand_over(app: &App, records: Vec<StepRecord>) -> Result<Vec<LeasedStep>, ApiFailure> {
    let mut steps = Vec::with_capacity(records.len());
    for mut record in records {
        match serde_json::from_value::<StepInput>(std::mem::take(&mut record.input)) {
            Ok(input) if input.kind().as_str() == record.kind => steps.push(leased(record, input)),
            Ok(_) => refuse(app, &record, "it belongs to another kind of step").await?,
            Err(error) => refuse(app, &record, &error.to_string()).await?,
        }
    }
    Ok(steps)
}

fn leased(record: StepRecord, input: StepInput) -> LeasedStep {
    let traceparent = Some(TraceParent::of_try(&record.run, &record.id, record.epoch).to_string());
    LeasedStep {
        step: record.id,
        epoch: record.epoch,
        run: record.run,
        key: record.key,
        route: record.route,
        input,
        timeout_ms: record.timeout_ms,
        device: record.device,
        traceparent,
    }
}

/// Fails a step whose input this release cannot read. Otherwise it would be leased again and again.
async fn refuse(app: &App, record: &StepRecord, why: &str) -> Result<(), ApiFailure> {
    let failure =
        StepFailure::fatal("step.unreadable_input", format!("this release cannot read the step's input: {why}"));
    let outcome = TryOutcome::Failed { failure };
    let done = app.commit(record, record.epoch, outcome, Reporter::Agents, None).await;
    done.map(|_| ()).map_err(not_committed)
}

/// Extends all leases of a worker, and returns the steps that it must stop.
pub(crate) async fn heartbeat(
    State(app): State<Arc<App>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(heartbeat): Body<Heartbeat>,
) -> Result<Json<HeartbeatReply>, ApiFailure> {
    if heartbeat.leases.len() > MAX_LEASES {
        return Err(ApiFailure::bad("request.invalid", format!("a heartbeat carries at most {MAX_LEASES} leases")));
    }
    let known = app.worker_registry.find(&*app.store.workers, &worker).await?;
    if heartbeat.leaving {
        app.drain(&worker, true).await?;
    }
    if let Some(mut devices) = heartbeat.readings {
        let offered = &known.offers.devices;
        devices.retain(|reading| offered.iter().any(|device| device.index == reading.device));
        devices.sort_unstable_by_key(|reading| reading.device);
        devices.dedup_by_key(|reading| reading.device);
        app.worker_registry.record_reading(ReadingRecord { worker: worker.clone(), at: app.clock.now(), devices });
    }
    let released = match &heartbeat.quarantined {
        None => Vec::new(),
        Some(devices) => app.take_in_quarantine(&worker, &known.name, &known.offers, devices).await?,
    };
    if heartbeat.leases.is_empty() {
        app.worker_registry.mark_seen(&worker);
        app.sweeper_schedule.extended(&worker, None);
        return Ok(Json(HeartbeatReply { lost: Vec::new(), cancelled: Vec::new(), released }));
    }
    let at = app.clock.now();
    let expires_at = app.lease_end(at);
    let result = app.store.leases.heartbeat(&worker, &heartbeat.leases, at, expires_at).await;
    app.store_health.note(&result);
    let outcome = result?;
    app.sweeper_schedule.extended(&worker, (outcome.lost.len() < heartbeat.leases.len()).then_some(expires_at));
    Ok(Json(HeartbeatReply { lost: outcome.lost, cancelled: outcome.cancelled, released }))
}

/// Asks a worker to take no new steps and to end, or to resume.
pub(crate) async fn drain(
    State(app): State<Arc<App>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(drain): Body<Drain>,
) -> Result<StatusCode, ApiFailure> {
    app.drain(&worker, drain.draining).await?;
    tracing::info!(worker.id = %worker, draining = drain.draining, "the draining state of a worker was changed");
    Ok(StatusCode::NO_CONTENT)
}

impl App {
    /// Stores whether a worker takes no new steps.
    async fn drain(&self, worker: &WorkerId, draining: bool) -> Result<(), StoreError> {
        let result = self.store.workers.drain_worker(worker, draining).await;
        self.store_health.note_error(&result);
        result?;
        self.worker_registry.set_draining(worker, draining);
        self.dispatcher.wake_worker(worker);
        Ok(())
    }
}

/// Commits how a try ended, and leases further steps for the free slots.
pub(crate) async fn report(
    State(app): State<Arc<App>>,
    IdPath(id): IdPath<StepId>,
    Body(report): Body<Report>,
) -> Result<Json<ReportReply>, ApiFailure> {
    let step = match app.leases.find(&id, report.epoch) {
        Some(step) => step,
        None => app.store.leases.load_step(&id).await?,
    };
    if StepKind::parse(&step.kind).is_some_and(|kind| kind.executor() == Executor::Agent) {
        return Err(ApiFailure::forbidden(
            "auth.route_not_allowed",
            "workers cannot report steps of agents: those are carried out by the server",
        ));
    }
    if step.worker.as_ref() != Some(&report.worker) {
        return Ok(Json(ReportReply { result: ReportResult::LeaseLost, steps: Vec::new() }));
    }
    app.worker_registry.mark_seen(&report.worker);
    let claim = match &report.free {
        Some(free) => claim_with_report(&app, &report.worker, free).await,
        None => None,
    };
    let reporter = Reporter::Worker { draining: app.worker_registry.is_draining(&report.worker) };
    let done = app.commit(&step, report.epoch, report.result, reporter, claim).await.map_err(not_committed)?;
    let result = match done.reported {
        Reported::Committed => ReportResult::Committed,
        Reported::LeaseLost => ReportResult::LeaseLost,
    };
    if result == ReportResult::LeaseLost {
        tracing::info!(step.id = %id, worker.id = %report.worker, "a late report was dropped");
    }
    Ok(Json(ReportReply { result, steps: hand_over(&app, done.steps).await? }))
}

/// Returns the claim that accompanies a report.
///
/// Returns none for a draining or unknown worker, and while the server stops. The report is committed without it, and
/// the worker's next claim reports the problem.
async fn claim_with_report(app: &App, worker: &WorkerId, free: &FreeSlots) -> Option<ClaimRequest> {
    let known = app.worker_registry.find(&*app.store.workers, worker).await.ok()?;
    if known.draining || app.shutdown.is_cancelled() {
        return None;
    }
    let taker = Taker::machine(&known.offers, free);
    let reach = app.dispatcher.reach(worker, &taker);
    let at = app.clock.now();
    (!reach.is_empty()).then(|| reach.request(worker, at, app.lease_end(at)))
}

fn not_committed(error: CommitError) -> ApiFailure {
    match error {
        CommitError::Mismatch { .. } | CommitError::Unwritable(_) => {
            ApiFailure::bad("request.output_mismatch", error.to_string())
        }
        CommitError::Store(error) => error.into(),
    }
}
