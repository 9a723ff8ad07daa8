//! The agents of this server: a worker inside the process, which alone holds model keys.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use nightshift_engine::event::Event;
use nightshift_engine::store::{ClaimRequest, Reported, StepRecord, StoreError, WorkerRecord};
use nightshift_optimizer::agent::AgentStep;
use nightshift_protocol::api::TryOutcome;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::{RunId, ServerId, StepId, WorkerId};
use nightshift_protocol::machine::{MachineFacts, Offers, SandboxReport};
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::agent_ports::{Recordings, StorePorts};
use crate::agents::AgentExecutor;
use crate::backoff::Backoff;
use crate::commit::{CommitError, Reporter};
use crate::dispatch::Dispatch;
use crate::dispatch::Taker;
use crate::driving::Driving;
use crate::shared::Shared;

/// Duration of one long poll for steps.
const WAIT: Duration = Duration::from_mins(1);
/// Name of this worker in lists.
const WORKER_NAME: &str = "agents";

/// Name of this operation in error logs.
const REGISTERING: &str = "registering the agents";
const CLAIMING: &str = "claiming steps for the agents";
const SENDING: &str = "extending the agents' leases";

/// Why a step is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Its run is being cancelled.
    Cancelled,
    /// Its lease was lost.
    Lost,
}

/// A step that the agents carry out.
struct RunningStep {
    epoch: u64,
    stop: Option<oneshot::Sender<Stop>>,
    /// Cancelled when this try has ended.
    over: CancellationToken,
}

/// A step to begin.
struct StepToRun {
    agents: Arc<dyn AgentExecutor>,
    driving: Arc<Driving>,
    worker: WorkerId,
    step: StepRecord,
    /// An earlier try that still runs here under a lost lease.
    earlier: Option<CancellationToken>,
    recordings: Arc<Recordings>,
}

/// Runs the loop until the server ends. Steps in progress keep their leases then, which end with the server lease.
pub(crate) async fn run(agents: Arc<dyn AgentExecutor>, driving: Arc<Driving>) {
    let Driving { shared, dispatch, .. } = &*driving;
    let recordings = Arc::new(Recordings::default());
    loop {
        let server = tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            server = driving.server_lease.wait_until_begun() => server,
        };
        let Some(worker) = register(shared, &server).await else { return };
        // After a new server lease, the steps of the previous one belong to other workers. They are dropped with the
        // loop's body.
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            () = driving.server_lease.wait_until_ended(&server) => tracing::warn!("the agents abort their steps and restart"),
            () = work(&agents, &driving, &worker, &recordings) => {}
        }
        dispatch.worker_registry.forget(&worker);
    }
}

/// Carries out steps while the server lease lasts.
async fn work(
    agents: &Arc<dyn AgentExecutor>,
    driving: &Arc<Driving>,
    worker: &WorkerId,
    recordings: &Arc<Recordings>,
) {
    let Driving { shared, dispatch, .. } = &**driving;
    let mut held: HashMap<StepId, RunningStep> = HashMap::new();
    // Dropping the set aborts the steps in progress.
    let mut tasks: JoinSet<Vec<StepRecord>> = JoinSet::new();
    let mut tries: HashMap<Id, (StepId, u64)> = HashMap::new();
    let mut heartbeat = tokio::time::interval(Duration::from_millis(shared.config.heartbeat_ms));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut backoff = Backoff::default();
    // A claim is a task of its own, because aborting it could leave leases without a holder.
    let mut claims: JoinSet<Result<Vec<StepRecord>, StoreError>> = JoinSet::new();
    let mut claim_at = Instant::now();
    let begin = |steps: Vec<StepRecord>,
                 held: &mut HashMap<StepId, RunningStep>,
                 tries: &mut HashMap<Id, (StepId, u64)>,
                 tasks: &mut JoinSet<Vec<StepRecord>>| {
        for step in steps {
            let (stop, stopped) = oneshot::channel();
            let (id, epoch, over) = (step.id.clone(), step.epoch, CancellationToken::new());
            let earlier = held.insert(id.clone(), RunningStep { epoch, stop: Some(stop), over: over.clone() });
            let earlier = earlier.map(|earlier| earlier.over);
            let (agents, driving, recordings) = (agents.clone(), driving.clone(), recordings.clone());
            let carried = StepToRun { agents, driving, worker: worker.clone(), step, earlier, recordings };
            let over = over.drop_guard();
            let task = tasks.spawn(async move {
                let _over = over;
                carry(carried, stopped).await
            });
            tries.insert(task.id(), (id, epoch));
        }
    };
    loop {
        let free = shared.config.agent_slots.saturating_sub(held.len());
        if free > 0 && claims.is_empty() {
            claims.spawn(claim(dispatch.clone(), worker.clone(), free, claim_at));
        }
        tokio::select! {
            biased;
            Some(done) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                let (task, next) = match done {
                    Ok(done) => done,
                    // A step's task catches panics of the agents. After another panic, its lease expires.
                    Err(error) => {
                        tracing::error!(error = %error, "a step's task panicked");
                        (error.id(), Vec::new())
                    }
                };
                if let Some((step, epoch)) = tries.remove(&task)
                    && held.get(&step).is_some_and(|held| held.epoch == epoch)
                {
                    held.remove(&step);
                }
                begin(next, &mut held, &mut tries, &mut tasks);
            }
            _ = heartbeat.tick() => beat(dispatch, worker, &mut held).await,
            Some(claimed) = claims.join_next(), if !claims.is_empty() => {
                let claimed = claimed.unwrap_or_else(|error| Err(StoreError::Other(error.to_string())));
                match claimed {
                    Ok(steps) => {
                        backoff.succeeded();
                        shared.error_log.worked(CLAIMING);
                        claim_at = Instant::now();
                        begin(steps, &mut held, &mut tries, &mut tasks);
                    }
                    Err(error) => {
                        shared.store_health.note_error::<()>(&Err(error.clone()));
                        shared.error_log.failed(CLAIMING, &error);
                        claim_at = Instant::now() + backoff.failed();
                    }
                }
            }
        }
    }
}

async fn register(shared: &Shared, server: &ServerId) -> Option<WorkerId> {
    let worker = WorkerId::from_uuid(shared.new_uuid());
    let offers = Offers {
        targets: Vec::new(),
        cpu_slots: u32::try_from(shared.config.agent_slots).unwrap_or(u32::MAX),
        devices: Vec::new(),
        tools: BTreeSet::new(),
        labels: BTreeSet::new(),
        machine: MachineFacts {
            host: "server".to_owned(),
            os: std::env::consts::OS.to_owned(),
            processor: std::env::consts::ARCH.to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            features: Vec::new(),
            memory_bytes: 0,
            last_level_cache_bytes: None,
            core: None,
            cpp_toolchain: None,
            cuda_toolchain: None,
            gpus: Vec::new(),
            sandbox: SandboxReport::default(),
        },
    };
    let offers = match serde_json::to_value(offers) {
        Ok(offers) => offers,
        Err(error) => {
            tracing::error!(error = %error, "the agents cannot be registered");
            return None;
        }
    };
    let mut backoff = Backoff::default();
    loop {
        let record = WorkerRecord {
            id: worker.clone(),
            name: WORKER_NAME.to_owned(),
            embedded: true,
            offers: offers.clone(),
            version: shared.config.version.clone(),
            last_seen_at: shared.clock.now(),
            leases: 0,
            server: Some(server.clone()),
            draining: false,
        };
        let result = shared.store.workers.register_worker(record).await;
        shared.store_health.note(&result);
        let Err(error) = result else {
            shared.error_log.worked(REGISTERING);
            return Some(worker);
        };
        shared.error_log.failed(REGISTERING, &error);
        tokio::select! {
            () = shared.shutdown.cancelled() => return None,
            () = tokio::time::sleep(backoff.failed()) => {}
        }
    }
}

/// Waits for steps.
async fn claim(
    dispatch: Arc<Dispatch>,
    worker: WorkerId,
    free: usize,
    begin: Instant,
) -> Result<Vec<StepRecord>, StoreError> {
    tokio::time::sleep_until(begin).await;
    let taker = Taker::Agents { slots: u32::try_from(free).unwrap_or(u32::MAX) };
    dispatch.wait_for_steps(&worker, &taker, Instant::now() + WAIT).await.map(|(steps, _)| steps)
}

async fn beat(dispatch: &Dispatch, worker: &WorkerId, held: &mut HashMap<StepId, RunningStep>) {
    if held.is_empty() {
        dispatch.worker_registry.mark_seen(worker);
        return;
    }
    let leases: Vec<(StepId, u64)> = held.iter().map(|(step, held)| (step.clone(), held.epoch)).collect();
    let shared = &dispatch.shared;
    let at = shared.clock.now();
    let result = shared.store.leases.heartbeat(worker, &leases, at, shared.lease_end(at)).await;
    shared.store_health.note(&result);
    match result {
        Ok(outcome) => {
            shared.error_log.worked(SENDING);
            dispatch.sweeper_schedule.extended(worker, Some(shared.lease_end(at)));
            let lost = outcome.lost.iter().map(|step| (step, Stop::Lost));
            let cancelled = outcome.cancelled.iter().map(|step| (step, Stop::Cancelled));
            for (step, reason) in lost.chain(cancelled) {
                if let Some(stop) = held.get_mut(step).and_then(|held| held.stop.take()) {
                    tracing::info!(step.id = %step, reason = ?reason, "a step of the agents is stopped");
                    // A finished task does not listen any more.
                    let _ = stop.send(reason);
                }
            }
        }
        Err(error) => shared.error_log.failed(SENDING, &error),
    }
}

/// Carries out one step and reports it. Returns the steps that were claimed for the free slot with the report.
async fn carry(carried: StepToRun, mut stopped: oneshot::Receiver<Stop>) -> Vec<StepRecord> {
    let StepToRun { agents, driving, worker, step, earlier, recordings } = carried;
    let started = Instant::now();
    let open_call = Arc::new(AtomicBool::new(false));
    let outcome = {
        let work = AssertUnwindSafe(async {
            if let Some(earlier) = earlier {
                // The earlier try may be about to commit a paid answer, which this try then finds.
                earlier.cancelled().await;
            }
            // The answer of a try that lost its lease may still wait for disk space.
            recordings.wait(&step.id).await;
            execute(&driving, &*agents, &step, recordings, open_call.clone()).await
        })
        .catch_unwind();
        tokio::select! {
            biased;
            Ok(reason) = &mut stopped => match reason {
                Stop::Lost => return Vec::new(),
                Stop::Cancelled => TryOutcome::Cancelled,
            },
            ended = tokio::time::timeout(Duration::from_millis(step.timeout_ms), work) => match ended {
                Ok(Ok(Ok(output))) => TryOutcome::Completed { output: Box::new(output) },
                Ok(Ok(Err(failure))) => TryOutcome::Failed { failure },
                Ok(Err(_)) => TryOutcome::Failed {
                    failure: StepFailure::retriable("agent.panicked", "the agent panicked; this is a defect of the program"),
                },
                Err(_) => {
                    let message = format!("the step took longer than {} ms", step.timeout_ms);
                    let mut failure = StepFailure::retriable("step.timed_out", message);
                    // A try that only waited, for example for a place of a command, costs nothing.
                    failure.charged_tries = u32::from(open_call.load(Ordering::Relaxed));
                    TryOutcome::Failed { failure }
                }
            },
        }
    };
    let duration_ms = started.elapsed().as_millis();
    let claim = claim_with_report(&driving.dispatch, &worker);
    let (reported, next) = report(&driving, &step, outcome, claim, &mut stopped).await;
    tracing::info!(
        run.id = %step.run, step.key = %step.key, step.outcome = reported, duration_ms, "a step of the agents ended"
    );
    driving.shared.error_log.worked(&reporting(&step));
    next
}

/// Returns the claim that accompanies a report, for the slot that it frees. Returns none while the server stops.
fn claim_with_report(dispatch: &Dispatch, worker: &WorkerId) -> Option<ClaimRequest> {
    let shared = &dispatch.shared;
    if shared.shutdown.is_cancelled() {
        return None;
    }
    let reach = dispatch.dispatcher.reach(worker, &Taker::Agents { slots: 1 });
    let at = shared.clock.now();
    (!reach.is_empty()).then(|| reach.request(worker, at, shared.lease_end(at)))
}

/// Waits until the lease is lost. A cancellation does not stop the report of a step.
async fn lost(stopped: &mut oneshot::Receiver<Stop>) {
    if !stopped.is_terminated() && stopped.await == Ok(Stop::Lost) {
        return;
    }
    std::future::pending::<()>().await;
}

async fn execute(
    driving: &Driving,
    agents: &dyn AgentExecutor,
    step: &StepRecord,
    recordings: Arc<Recordings>,
    open_call: Arc<AtomicBool>,
) -> Result<StepOutput, StepFailure> {
    let shared = &driving.shared;
    let unreadable = |error: serde_json::Error| {
        StepFailure::fatal("step.unreadable_input", format!("the step's input cannot be read: {error}"))
    };
    let input: StepInput = serde_json::from_value(step.input.clone()).map_err(unreadable)?;
    if input.kind().as_str() != step.kind {
        return Err(StepFailure::fatal("step.unreadable_input", "the step's input belongs to another kind of step"));
    }
    let run_input = if let Some(run_input) = driving.inputs.get(&step.run) {
        run_input
    } else {
        let run_input = Arc::new(read_run_input(shared, &step.run).await?);
        driving.inputs.keep(step.run.clone(), run_input.clone());
        run_input
    };
    let ports = StorePorts {
        store: shared.store.clone(),
        clock: shared.clock.clone(),
        step: step.id.clone(),
        epoch: step.epoch,
        random: shared.random.clone(),
        request_deadline_ms: u64::try_from(shared.config.request_deadline.as_millis()).unwrap_or(u64::MAX),
        recordings,
        open_call,
    };
    let agent_step = AgentStep { run: &step.run, step_key: &step.key, input: &input, run_input: &run_input };
    agents.carry_out(&ports, agent_step).await
}

/// Returns the input of the run.
async fn read_run_input(shared: &Shared, run: &RunId) -> Result<RunInput, StepFailure> {
    let first = shared.store.runs.events_after(run, 0, 1).await;
    let first = first.map_err(|error| StepFailure::retriable(error.code(), error.to_string()))?;
    match first.into_iter().next().map(|record| record.event) {
        Some(Event::RunCreated { input }) => serde_json::from_value(input)
            .map_err(|error| StepFailure::fatal("run.unreadable", format!("the run's input cannot be read: {error}"))),
        _ => Err(StepFailure::fatal("run.unreadable", "the run's log does not begin with its creation")),
    }
}

/// Returns the name of the report in error logs.
fn reporting(step: &StepRecord) -> String {
    format!("reporting the agents' step {}", step.id)
}

/// Reports until the store accepts it or the lease is lost. Returns the steps that were claimed with it.
async fn report(
    driving: &Driving,
    step: &StepRecord,
    mut outcome: TryOutcome,
    mut claim: Option<ClaimRequest>,
    stopped: &mut oneshot::Receiver<Stop>,
) -> (&'static str, Vec<StepRecord>) {
    let shared = &driving.shared;
    let mut backoff = Backoff::default();
    loop {
        // Never aborted, because that could leave leases without a holder. A repetition claims nothing more.
        let done = driving.commit(step, step.epoch, outcome.clone(), Reporter::Agents, claim.take()).await;
        match done.map(|done| (done.reported, done.steps)) {
            Ok((Reported::Committed, next)) => {
                let reported = match outcome {
                    TryOutcome::Completed { .. } => "completed",
                    TryOutcome::Failed { .. } => "failed",
                    TryOutcome::Cancelled => "cancelled",
                };
                return (reported, next);
            }
            Ok((Reported::LeaseLost, next)) => return ("lease_lost", next),
            // The store has deleted the worker of the claim. The report itself is valid.
            Err(CommitError::Store(StoreError::NotFound { noun: "worker", .. })) => {}
            Err(CommitError::Store(StoreError::NotFound { .. })) => return ("lease_lost", Vec::new()),
            Err(error @ (CommitError::Mismatch { .. } | CommitError::Unwritable(_))) => {
                outcome =
                    TryOutcome::Failed { failure: StepFailure::fatal("request.output_mismatch", error.to_string()) };
            }
            Err(CommitError::Store(error)) => {
                shared.error_log.failed(&reporting(step), &error);
                tokio::select! {
                    () = tokio::time::sleep(backoff.failed()) => {}
                    // The lease was lost while the store could not be written, so the report would be refused.
                    () = lost(stopped) => return ("lease_lost", Vec::new()),
                }
            }
        }
    }
}
