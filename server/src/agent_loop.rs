//! The agents of this server: a worker inside the process, which alone holds model keys.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use nightshift_engine::event::Event;
use nightshift_engine::store::{ClaimRequest, Reported, StepRecord, StoreError, WorkerRecord};
use nightshift_optimizer::agent::AgentStep;
use nightshift_protocol::api::TryOutcome;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::machine::{MachineFacts, Needs, Offers, SandboxReport};
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use crate::agent_ports::StorePorts;
use crate::app::App;
use crate::backoff::Backoff;
use crate::commit::CommitError;

/// How often the store is asked for steps when nobody says that there are some.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Name of this worker in lists.
const WORKER_NAME: &str = "agents";

/// What this loop does, in complaints.
const REGISTERING: &str = "registering the agents";
const CLAIMING: &str = "claiming steps for the agents";
const BEATING: &str = "extending the agents' leases";

/// Why a step is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Its run is being cancelled.
    Cancelled,
    /// Somebody else has it now, or nobody wants it.
    Lost,
}

/// A step in the agents' hands.
struct Held {
    epoch: u64,
    stop: Option<oneshot::Sender<Stop>>,
}

/// The loop. Ends with the server; steps that are in the works then keep their leases, which the next start frees.
pub(crate) async fn run(app: Arc<App>) {
    let Some(worker) = register(&app).await else { return };
    let mut held: HashMap<StepId, Held> = HashMap::new();
    // Dropping the set aborts what is in the works.
    let mut tasks: JoinSet<()> = JoinSet::new();
    let mut steps_of: HashMap<Id, StepId> = HashMap::new();
    let mut heartbeat = tokio::time::interval(Duration::from_millis(app.config.heartbeat_ms));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look_at = Instant::now();
    let mut backoff = Backoff::default();
    loop {
        let free = app.config.agent_slots.saturating_sub(held.len());
        let work = app.wake.work().notified();
        tokio::pin!(work);
        work.as_mut().enable();
        if free > 0 && look_at <= Instant::now() {
            match claim(&app, &worker, free).await {
                Ok(steps) => {
                    backoff.succeeded();
                    app.complaints.worked(CLAIMING);
                    look_at = Instant::now() + LOOK_EVERY;
                    for step in steps {
                        let (stop, stopped) = oneshot::channel();
                        held.insert(step.id.clone(), Held { epoch: step.epoch, stop: Some(stop) });
                        let id = step.id.clone();
                        steps_of.insert(tasks.spawn(carry(app.clone(), step, stopped)).id(), id);
                    }
                    continue;
                }
                Err(error) => {
                    app.trouble.note_error::<()>(&Err(error.clone()));
                    app.complaints.failed(CLAIMING, &error);
                    look_at = Instant::now() + backoff.failed();
                }
            }
        }
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            Some(done) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                let task = match done {
                    Ok((task, ())) => task,
                    // A step's task catches the agents' panics; one of its own leaves the lease to run out.
                    Err(error) => {
                        tracing::error!(error = %error, "a step's task panicked");
                        error.id()
                    }
                };
                if let Some(step) = steps_of.remove(&task) {
                    held.remove(&step);
                }
                look_at = Instant::now();
            }
            _ = heartbeat.tick() => beat(&app, &worker, &mut held).await,
            () = work => look_at = Instant::now(),
            () = tokio::time::sleep_until(look_at), if free > 0 => {}
        }
    }
}

async fn register(app: &App) -> Option<WorkerId> {
    let worker = WorkerId::from_uuid(app.new_uuid());
    let offers = Offers {
        targets: Vec::new(),
        cpu_slots: u32::try_from(app.config.agent_slots).unwrap_or(u32::MAX),
        device_slots: 0,
        machine: MachineFacts {
            host: "server".to_owned(),
            os: std::env::consts::OS.to_owned(),
            processor: std::env::consts::ARCH.to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            features: Vec::new(),
            memory_bytes: 0,
            last_level_cache_bytes: None,
            cpp_toolchain: None,
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
            version: app.config.version.clone(),
            last_seen_at: app.clock.now(),
            leases: 0,
        };
        let result = app.store.register_worker(record).await;
        app.trouble.note(&result);
        let Err(error) = result else {
            app.complaints.worked(REGISTERING);
            return Some(worker);
        };
        app.complaints.failed(REGISTERING, &error);
        tokio::select! {
            () = app.shutdown.cancelled() => return None,
            () = tokio::time::sleep(backoff.failed()) => {}
        }
    }
}

async fn claim(app: &App, worker: &WorkerId, free: usize) -> Result<Vec<StepRecord>, StoreError> {
    let at = app.clock.now();
    let free = u32::try_from(free).unwrap_or(u32::MAX);
    let request = ClaimRequest {
        worker: worker.clone(),
        free: vec![(Needs::agent().route(), free)],
        at,
        expires_at: app.lease_end(at),
    };
    app.store.claim(request).await
}

async fn beat(app: &App, worker: &WorkerId, held: &mut HashMap<StepId, Held>) {
    let leases: Vec<(StepId, u64)> = held.iter().map(|(step, held)| (step.clone(), held.epoch)).collect();
    let at = app.clock.now();
    let result = app.store.heartbeat(worker, &leases, at, app.lease_end(at)).await;
    app.trouble.note(&result);
    match result {
        Ok(outcome) => {
            app.complaints.worked(BEATING);
            let lost = outcome.lost.iter().map(|step| (step, Stop::Lost));
            let cancelled = outcome.cancelled.iter().map(|step| (step, Stop::Cancelled));
            for (step, reason) in lost.chain(cancelled) {
                if let Some(stop) = held.get_mut(step).and_then(|held| held.stop.take()) {
                    tracing::info!(step.id = %step, reason = ?reason, "a step of the agents is stopped");
                    // A task that is over listens no more.
                    let _ = stop.send(reason);
                }
            }
        }
        Err(error) => app.complaints.failed(BEATING, &error),
    }
}

/// Carries one step out and reports it.
async fn carry(app: Arc<App>, step: StepRecord, mut stopped: oneshot::Receiver<Stop>) {
    let started = Instant::now();
    let outcome = {
        let work = AssertUnwindSafe(execute(&app, &step)).catch_unwind();
        tokio::select! {
            biased;
            Ok(reason) = &mut stopped => match reason {
                Stop::Lost => return,
                Stop::Cancelled => TryOutcome::Cancelled,
            },
            ended = tokio::time::timeout(Duration::from_millis(step.timeout_ms), work) => match ended {
                Ok(Ok(Ok(output))) => TryOutcome::Completed { output: Box::new(output) },
                Ok(Ok(Err(failure))) => TryOutcome::Failed { failure },
                Ok(Err(_)) => TryOutcome::Failed {
                    failure: StepFailure::retriable("agent.panicked", "the agent panicked; this is a defect of the program"),
                },
                Err(_) => TryOutcome::Failed {
                    failure: StepFailure::retriable(
                        "step.timed_out",
                        format!("the step took longer than {} ms", step.timeout_ms),
                    ),
                },
            },
        }
    };
    let duration_ms = started.elapsed().as_millis();
    tokio::select! {
        biased;
        reported = report(&app, &step, outcome) => {
            tracing::info!(
                run.id = %step.run, step.key = %step.key, step.outcome = reported, duration_ms, "a step of the agents ended"
            );
        }
        // The lease is gone while the store could not be written: nobody would take the report.
        () = lost(&mut stopped) => {}
    }
    app.complaints.worked(&reporting(&step));
}

/// Ends when the lease is lost; a cancellation has no effect on a step that is being reported.
async fn lost(stopped: &mut oneshot::Receiver<Stop>) {
    if !stopped.is_terminated() && stopped.await == Ok(Stop::Lost) {
        return;
    }
    std::future::pending::<()>().await;
}

async fn execute(app: &App, step: &StepRecord) -> Result<StepOutput, StepFailure> {
    let unreadable = |error: serde_json::Error| {
        StepFailure::fatal("step.unreadable_input", format!("the step's input cannot be read: {error}"))
    };
    let input: StepInput = serde_json::from_value(step.input.clone()).map_err(unreadable)?;
    if input.kind().as_str() != step.kind {
        return Err(StepFailure::fatal("step.unreadable_input", "the step's input belongs to another kind of step"));
    }
    let first = app.store.events_after(&step.run, 0, 1).await;
    let first = first.map_err(|error| StepFailure::retriable(error.code(), error.to_string()))?;
    let run_input: RunInput = match first.into_iter().next().map(|record| record.event) {
        Some(Event::RunCreated { input }) => serde_json::from_value(input).map_err(unreadable)?,
        _ => return Err(StepFailure::fatal("run.unreadable", "the run's log does not begin with its creation")),
    };
    let ports = StorePorts { store: app.store.clone(), clock: app.clock.clone() };
    let agent_step = AgentStep { run: &step.run, step_key: &step.key, input: &input, run_input: &run_input };
    app.agents.carry_out(&ports, agent_step).await
}

/// The report of a step in complaints.
fn reporting(step: &StepRecord) -> String {
    format!("reporting the agents' step {}", step.id)
}

/// Reports until the store took it or the lease is gone.
async fn report(app: &App, step: &StepRecord, outcome: TryOutcome) -> &'static str {
    let mut outcome = outcome;
    let mut backoff = Backoff::default();
    loop {
        match app.commit(step, step.epoch, outcome.clone()).await {
            Ok(Reported::Committed) => {
                return match outcome {
                    TryOutcome::Completed { .. } => "completed",
                    TryOutcome::Failed { .. } => "failed",
                    TryOutcome::Cancelled => "cancelled",
                };
            }
            Ok(Reported::LeaseLost) | Err(CommitError::Store(StoreError::NotFound { .. })) => return "lease_lost",
            Err(error @ (CommitError::Mismatch { .. } | CommitError::Unwritable(_))) => {
                outcome =
                    TryOutcome::Failed { failure: StepFailure::fatal("request.output_mismatch", error.to_string()) };
            }
            Err(CommitError::Store(error)) => {
                app.complaints.failed(&reporting(step), &error);
                tokio::time::sleep(backoff.failed()).await;
            }
        }
    }
}
