//! Workers: registration, claims, heartbeats, reports.

use std::collections::{BTreeSet, HashMap};
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
use serde_json::Value;
use tokio::time::Instant;

use crate::api::devices::take_in_quarantine;
use crate::api::idempotency::Creating;
use crate::api::list::PageQuery;
use crate::caller::Caller;
use crate::commit::{CommitError, Reporter};
use crate::dispatch::Dispatch;
use crate::dispatch::Taker;
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath, Params};
use crate::present::worker_view;
use crate::shared::Shared;
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
/// Maximum length of a worker's offers as JSON, in bytes. Lists of workers contain them.
const MAX_OFFERS_BYTES: usize = 64 * 1024;
/// Maximum number of leases per heartbeat.
const MAX_LEASES: usize = 4_096;

/// Lists workers, most recently seen first.
pub(crate) async fn list(
    State(dispatch): State<Arc<Dispatch>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<WorkerView>>, ApiFailure> {
    Ok(Json(query.of_moving(worker_views(&dispatch).await?, |worker| worker.id.to_string())?))
}

/// Returns workers, most recently seen first.
pub(super) async fn worker_views(dispatch: &Dispatch) -> Result<Vec<WorkerView>, ApiFailure> {
    let shared = &dispatch.shared;
    let records = shared.store.workers.list_workers(MAX_LISTED_WORKERS).await?;
    let stored = shared.store.watch.list_readings().await?;
    let mut stored: HashMap<WorkerId, ReadingRecord> =
        stored.into_iter().map(|reading| (reading.worker.clone(), reading)).collect();
    let (now, silent_ms) = (shared.clock.now(), silent_after_ms(shared.config.lease_ms));
    let view = |record: WorkerRecord| {
        let silent = now.since_ms(record.last_seen_at) > silent_ms;
        let reading = dispatch.worker_registry.reading_of(&record.id, stored.remove(&record.id));
        worker_view(record, silent, reading)
    };
    records.into_iter().map(view).collect()
}

/// Registers a worker.
pub(crate) async fn register(
    State(shared): State<Arc<Shared>>,
    State(dispatch): State<Arc<Dispatch>>,
    State(driving): State<Arc<Driving>>,
    Extension(caller): Extension<Caller>,
    Creating { wish: mut request, creator }: Creating<RegisterWorker>,
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
    let mut named = BTreeSet::new();
    request.offers.targets.retain(|target| named.insert(*target));
    let offers = examine(&request.offers)?;
    let worker = WorkerId::from_uuid(shared.new_uuid());
    let mut record = WorkerRecord {
        id: worker.clone(),
        name: request.name,
        embedded: caller.embedded,
        offers,
        version: request.version,
        last_seen_at: shared.clock.now(),
        leases: 0,
        server: if caller.embedded { driving.server_lease.current() } else { None },
        draining: false,
    };
    let registered =
        WorkerRegistered { worker, lease_ms: shared.config.lease_ms, heartbeat_ms: shared.config.heartbeat_ms };
    let answer = creator.create(&shared, Creation::Worker(record.clone()), registered).await?;
    let worker = answer.1.worker.clone();
    record.id = worker.clone();
    tracing::info!(worker.id = %worker, worker.name = %record.name, "a worker registered");
    let offers = Arc::new(request.offers);
    dispatch.worker_registry.registered(&record, Arc::clone(&offers));
    if offers.devices.iter().any(|device| device.uuid.is_some()) {
        let quarantined = quarantined(&offers);
        take_in_quarantine(&dispatch, &worker, &record.name, &offers, &quarantined).await?;
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

/// Limits the size of the offers, because a claim is built from them. Returns them as they are stored.
fn examine(offers: &Offers) -> Result<Value, ApiFailure> {
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
    let unwritable = |error| ApiFailure::bad("request.invalid", format!("the offers cannot be stored: {error}"));
    let stored = serde_json::to_value(offers).map_err(unwritable)?;
    let bytes = stored.to_string().len();
    if bytes > MAX_OFFERS_BYTES {
        return invalid(format!(
            "the offers of a worker have at most {MAX_OFFERS_BYTES} bytes as JSON, and these have {bytes}: shorten the \
             names and lists of the machine and its devices"
        ));
    }
    Ok(stored)
}

/// Leases steps to a worker. Waits until some are ready.
pub(crate) async fn claim(
    State(shared): State<Arc<Shared>>,
    State(dispatch): State<Arc<Dispatch>>,
    State(driving): State<Arc<Driving>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(claim): Body<Claim>,
) -> Result<Json<Claimed>, ApiFailure> {
    let until = Instant::now() + Duration::from_millis(claim.wait_ms.min(MAX_WAIT_MS));
    let known = dispatch.worker_registry.find(&*shared.store.workers, &worker).await?;
    dispatch.worker_registry.mark_seen(&worker);
    if known.draining {
        return Ok(Json(Claimed { steps: Vec::new(), draining: true, held_ms: 0 }));
    }
    let taker = Taker::machine(&known.offers, &claim.free);
    let (steps, held) = dispatch.wait_for_steps(&worker, &taker, until).await?;
    let steps = hand_over(&driving, steps).await?;
    let held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(Claimed { draining: steps.is_empty() && dispatch.worker_registry.is_draining(&worker), steps, held_ms }))
}

/// Returns the steps in the form for their worker.
async fn hand_over(driving: &Driving, records: Vec<StepRecord>) -> Result<Vec<LeasedStep>, ApiFailure> {
    let mut steps = Vec::with_capacity(records.len());
    for mut record in records {
        match serde_json::from_value::<StepInput>(std::mem::take(&mut record.input)) {
            Ok(input) if input.kind().as_str() == record.kind => steps.push(leased(record, input)),
            Ok(_) => refuse(driving, &record, "it belongs to another kind of step").await?,
            Err(error) => refuse(driving, &record, &error.to_string()).await?,
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
async fn refuse(driving: &Driving, record: &StepRecord, why: &str) -> Result<(), ApiFailure> {
    let failure =
        StepFailure::fatal("step.unreadable_input", format!("this release cannot read the step's input: {why}"));
    let outcome = TryOutcome::Failed { failure };
    let done = driving.commit(record, record.epoch, outcome, Reporter::Agents, None).await;
    done.map(|_| ()).map_err(not_committed)
}

/// Extends all leases of a worker, and returns the steps that it must stop.
pub(crate) async fn heartbeat(
    State(shared): State<Arc<Shared>>,
    State(dispatch): State<Arc<Dispatch>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(heartbeat): Body<Heartbeat>,
) -> Result<Json<HeartbeatReply>, ApiFailure> {
    if heartbeat.leases.len() > MAX_LEASES {
        return Err(ApiFailure::bad("request.invalid", format!("a heartbeat carries at most {MAX_LEASES} leases")));
    }
    let known = dispatch.worker_registry.find(&*shared.store.workers, &worker).await?;
    if heartbeat.leaving {
        set_draining(&dispatch, &worker, true).await?;
    }
    if let Some(mut devices) = heartbeat.readings {
        let offered = &known.offers.devices;
        devices.retain(|reading| offered.iter().any(|device| device.index == reading.device));
        devices.sort_unstable_by_key(|reading| reading.device);
        devices.dedup_by_key(|reading| reading.device);
        dispatch.worker_registry.record_reading(ReadingRecord {
            worker: worker.clone(),
            at: shared.clock.now(),
            devices,
        });
    }
    let released = match &heartbeat.quarantined {
        None => Vec::new(),
        Some(devices) => take_in_quarantine(&dispatch, &worker, &known.name, &known.offers, devices).await?,
    };
    if heartbeat.leases.is_empty() {
        dispatch.worker_registry.mark_seen(&worker);
        dispatch.sweeper_schedule.extended(&worker, None);
        return Ok(Json(HeartbeatReply { lost: Vec::new(), cancelled: Vec::new(), released }));
    }
    let at = shared.clock.now();
    let expires_at = shared.lease_end(at);
    let result = shared.store.leases.heartbeat(&worker, &heartbeat.leases, at, expires_at).await;
    shared.store_health.note(&result);
    let outcome = result?;
    dispatch.sweeper_schedule.extended(&worker, (outcome.lost.len() < heartbeat.leases.len()).then_some(expires_at));
    Ok(Json(HeartbeatReply { lost: outcome.lost, cancelled: outcome.cancelled, released }))
}

/// Asks a worker to take no new steps and to end, or to resume.
pub(crate) async fn drain(
    State(dispatch): State<Arc<Dispatch>>,
    IdPath(worker): IdPath<WorkerId>,
    Body(drain): Body<Drain>,
) -> Result<StatusCode, ApiFailure> {
    set_draining(&dispatch, &worker, drain.draining).await?;
    tracing::info!(worker.id = %worker, draining = drain.draining, "the draining state of a worker was changed");
    Ok(StatusCode::NO_CONTENT)
}

/// Stores whether a worker takes no new steps.
async fn set_draining(dispatch: &Dispatch, worker: &WorkerId, draining: bool) -> Result<(), StoreError> {
    let shared = &dispatch.shared;
    let result = shared.store.workers.drain_worker(worker, draining).await;
    shared.store_health.note_error(&result);
    result?;
    dispatch.worker_registry.set_draining(worker, draining);
    dispatch.dispatcher.wake_worker(worker);
    Ok(())
}

/// Commits how a try ended, and leases further steps for the free slots.
pub(crate) async fn report(
    State(shared): State<Arc<Shared>>,
    State(dispatch): State<Arc<Dispatch>>,
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<StepId>,
    Body(report): Body<Report>,
) -> Result<Json<ReportReply>, ApiFailure> {
    let step = match dispatch.leases.find(&id, report.epoch) {
        Some(step) => step,
        None => shared.store.leases.load_step(&id).await?,
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
    dispatch.worker_registry.mark_seen(&report.worker);
    let claim = match &report.free {
        Some(free) => claim_with_report(&dispatch, &report.worker, free).await,
        None => None,
    };
    let reporter = Reporter::Worker { draining: dispatch.worker_registry.is_draining(&report.worker) };
    let done = driving.commit(&step, report.epoch, report.result, reporter, claim).await.map_err(not_committed)?;
    let result = match done.reported {
        Reported::Committed => ReportResult::Committed,
        Reported::LeaseLost => ReportResult::LeaseLost,
    };
    if result == ReportResult::LeaseLost {
        tracing::info!(step.id = %id, worker.id = %report.worker, "a late report was dropped");
    }
    Ok(Json(ReportReply { result, steps: hand_over(&driving, done.steps).await? }))
}

/// Returns the claim that accompanies a report.
///
/// Returns none for a draining or unknown worker, and while the server stops. The report is committed without it, and
/// the worker's next claim reports the problem.
async fn claim_with_report(dispatch: &Dispatch, worker: &WorkerId, free: &FreeSlots) -> Option<ClaimRequest> {
    let shared = &dispatch.shared;
    let known = dispatch.worker_registry.find(&*shared.store.workers, worker).await.ok()?;
    if known.draining || shared.shutdown.is_cancelled() {
        return None;
    }
    let taker = Taker::machine(&known.offers, free);
    let reach = dispatch.dispatcher.reach(worker, &taker);
    let at = shared.clock.now();
    (!reach.is_empty()).then(|| reach.request(worker, at, shared.lease_end(at)))
}

fn not_committed(error: CommitError) -> ApiFailure {
    match error {
        CommitError::Mismatch { .. } | CommitError::Unwritable(_) => {
            ApiFailure::bad("request.output_mismatch", error.to_string())
        }
        CommitError::Store(error) => error.into(),
    }
}
