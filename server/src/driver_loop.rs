//! Drives the runs of this server: many at once, each by one task at a time and under its fence. Notices name changed
//! runs; the heartbeat finds runs without an owner.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::driver::{DriveError, Driven};
use nightshift_engine::ownership::{Load, runs_to_acquire};
use nightshift_engine::store::{CreatedRun, OwnerFence, Ownership, StoreError};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;
use serde::Deserialize as _;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::driving::Driving;

/// Maximum number of runs driven at once.
const MAX_AT_ONCE: usize = 64;
/// Assumed number of servers that share the runs of a dead server.
const SHARERS: usize = 16;
/// Maximum factor for the number of acquired runs, when the acquired ones cannot be driven.
const MAX_ACQUIRE_FACTOR: u32 = 256;
/// Maximum delay before runs are acquired, so that servers with the same notice share them.
const MAX_JITTER_MS: f64 = 20.0;
/// Number of heartbeats for which a run of another server is left to that server.
const FOREIGN_PULSES: u32 = 3;
/// Minimum and maximum delay before a failing run is driven again.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);
/// Time after its last retry was due until a failing run is forgotten. By then another server has it, or it was deleted.
const FORGET_FAILED_AFTER: Duration = Duration::from_mins(5);

/// Name of this loop in error logs.
const LOOKING: &str = "looking for runs to drive";
const DRIVING: &str = "driving a run";

/// A run that could not be driven.
struct FailedRun {
    until: Instant,
    failures: u32,
    /// The last logged message.
    told: String,
}

/// Runs the loop until the server ends.
pub(crate) async fn run(driving: Arc<Driving>) {
    let shared = &driving.shared;
    let mut state = State::new(driving.clone());
    let mut look_at: Option<Instant> = Some(Instant::now());
    let mut acquire_factor: u32 = 1;
    let mut backoff = Backoff::default();
    loop {
        let limit = state.room().saturating_mul(acquire_factor);
        let looks = look_at.filter(|_| limit > 0);
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            Some(done) = state.tasks.join_next_with_id(), if !state.tasks.is_empty() => state.done(done),
            () = driving.wake.mail() => {
                let mail = driving.wake.take_mail();
                state.pending.extend(mail.runs);
                if mail.look_again && look_at.is_none() {
                    look_at = Some(Instant::now() + state.jitter());
                }
            }
            () = tokio::time::sleep_until(looks.unwrap_or_else(Instant::now)), if looks.is_some() => {
                look_at = match take_over(&driving, limit).await {
                    Ok(taken) => {
                        backoff.succeeded();
                        shared.error_log.worked(LOOKING);
                        let full = taken.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
                        // Failing runs are found by every look and must not hide the others.
                        let news = state.pend(taken);
                        acquire_factor = if full && news == 0 { acquire_factor.saturating_mul(4) } else { 1 };
                        (full && acquire_factor <= MAX_ACQUIRE_FACTOR).then(|| Instant::now() + state.jitter())
                    }
                    Err(error) => {
                        shared.store_health.note_error::<()>(&Err(error.clone()));
                        shared.error_log.failed(LOOKING, &error);
                        Some(Instant::now() + backoff.failed())
                    }
                };
            },
        }
        state.start_pending();
    }
}

/// Acquires runs that wait for a decision.
async fn take_over(driving: &Driving, limit: u32) -> Result<Vec<RunId>, StoreError> {
    let shared = &driving.shared;
    let Some(server) = driving.server_lease.current() else { return Ok(Vec::new()) };
    let taken = shared.store.ownership.acquire_runs(&server, limit, shared.clock.now()).await?;
    Ok(taken
        .into_iter()
        .map(|(run, fence)| {
            driving.fences.keep(run.clone(), fence);
            run
        })
        .collect())
}

/// Returns the fence under which this server decides for the run, or none if it does not own it.
async fn fence_of(driving: &Driving, run: &RunId) -> Result<Option<OwnerFence>, StoreError> {
    let shared = &driving.shared;
    let Some(server) = driving.server_lease.current() else { return Ok(None) };
    if let Some(fence) = driving.fences.get(run, &server) {
        return Ok(Some(fence));
    }
    if driving.fences.is_foreign(run) {
        return Ok(None);
    }
    match shared.store.ownership.acquire_run(&server, run, shared.clock.now()).await? {
        Ownership::Mine(fence) => {
            driving.fences.keep(run.clone(), fence.clone());
            Ok(Some(fence))
        }
        Ownership::Other(_) => {
            // If the owner dies, the heartbeat finds its runs.
            driving.fences.mark_foreign_until(run.clone(), Instant::now() + shared.config.pulse() * FOREIGN_PULSES);
            Ok(None)
        }
        Ownership::TooNew { state_format } => {
            tracing::debug!(run.id = %run, state_format, "a newer release owned this run; it is skipped");
            driving.fences.mark_foreign_until(run.clone(), Instant::now() + shared.config.pulse() * FOREIGN_PULSES);
            Ok(None)
        }
        Ownership::HandedOver => {
            tracing::debug!(run.id = %run, "a run is handed over to another machine; it is skipped");
            driving.fences.mark_foreign_until(run.clone(), Instant::now() + shared.config.pulse() * FOREIGN_PULSES);
            Ok(None)
        }
        Ownership::Over => Ok(None),
    }
}

/// Returns a run that this process has just created for this server, with its fence.
fn created(driving: &Driving, run: &RunId) -> Option<(CreatedRun, OwnerFence)> {
    let shared = &driving.shared;
    let created = shared.store.ownership.take_created(run)?;
    let server = driving.server_lease.current()?;
    if created.run.owner.as_ref() != Some(&server) {
        return None;
    }
    if shared.config.agent_slots > 0
        && let Ok(input) = RunInput::deserialize(&created.input)
    {
        driving.inputs.keep(run.clone(), Arc::new(input));
    }
    let fence = OwnerFence { server, epoch: created.run.owner_epoch };
    driving.fences.keep(run.clone(), fence.clone());
    Some((created, fence))
}

/// Drives a run.
async fn drive(driving: Arc<Driving>, run: RunId) -> Result<Driven, DriveError> {
    let (driving, run) = (&*driving, &run);
    // A decision that is being committed with a report returns the run to the cache.
    driving.wake.until_decided(run).await;
    let _deciding = driving.wake.deciding(run);
    let driven = if let Some((created, fence)) = created(driving, run) {
        driving.driver.drive_created(created, Some(&fence)).await?
    } else {
        let Some(fence) = fence_of(driving, run).await? else { return Ok(Driven::NotOwner) };
        driving.driver.drive(run, Some(&fence)).await?
    };
    if matches!(driven, Driven::NotOwner | Driven::Ended) {
        driving.fences.give_up(run);
    }
    Ok(driven)
}

struct State {
    driving: Arc<Driving>,
    pending: HashSet<RunId>,
    again: HashSet<RunId>,
    resting: HashMap<RunId, FailedRun>,
    running: HashMap<Id, RunId>,
    busy: HashSet<RunId>,
    tasks: JoinSet<Result<Driven, DriveError>>,
}

impl State {
    fn new(driving: Arc<Driving>) -> Self {
        Self {
            driving,
            pending: HashSet::new(),
            again: HashSet::new(),
            resting: HashMap::new(),
            running: HashMap::new(),
            busy: HashSet::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Returns how many runs may be acquired now.
    fn room(&self) -> u32 {
        let queued = self.pending.len() + self.running.len();
        let servers = if self.driving.shared.config.sole { 1 } else { SHARERS };
        runs_to_acquire(Load { queued, servers })
    }

    fn jitter(&self) -> Duration {
        if self.driving.shared.config.sole {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(self.driving.shared.random.unit() * MAX_JITTER_MS / 1_000.0)
    }

    /// Queues runs. Returns how many of them can be driven now.
    fn pend(&mut self, runs: Vec<RunId>) -> usize {
        let now = Instant::now();
        let mut news = 0;
        for run in runs {
            if self.busy.contains(&run) || self.resting.get(&run).is_some_and(|rest| rest.until > now) {
                continue;
            }
            news += usize::from(self.pending.insert(run));
        }
        news
    }

    fn start_pending(&mut self) {
        let now = Instant::now();
        if self.running.len() >= MAX_AT_ONCE {
            return;
        }
        for run in std::mem::take(&mut self.pending) {
            if self.busy.contains(&run) {
                self.again.insert(run);
            } else if self.resting.get(&run).is_some_and(|rest| rest.until > now) {
                // The next look into the store finds it again.
            } else if self.running.len() < MAX_AT_ONCE {
                let handle = self.tasks.spawn(drive(self.driving.clone(), run.clone()));
                self.busy.insert(run.clone());
                self.running.insert(handle.id(), run);
            } else {
                self.pending.insert(run);
            }
        }
    }

    fn done(&mut self, done: Result<(Id, Result<Driven, DriveError>), JoinError>) {
        let (id, result) = match done {
            Ok((id, result)) => (
                id,
                result.map_err(|error| match error {
                    DriveError::Store(error) => {
                        self.driving.shared.store_health.note_error::<()>(&Err(error.clone()));
                        self.driving.shared.error_log.failed(DRIVING, &error);
                        None
                    }
                    error => Some(error.to_string()),
                }),
            ),
            Err(error) => (error.id(), Err(Some(format!("the driver panicked: {error}")))),
        };
        let Some(run) = self.running.remove(&id) else { return };
        self.busy.remove(&run);
        match result {
            Ok(driven) => {
                if self.resting.remove(&run).is_some_and(|rest| !rest.told.is_empty()) {
                    tracing::info!(run.id = %run, "the run can be driven again");
                }
                if matches!(driven, Driven::Advanced | Driven::Ended) {
                    self.driving.shared.store_health.note(&Ok(()));
                    self.driving.shared.error_log.worked(DRIVING);
                }
            }
            Err(message) => self.delay_retry(&run, message),
        }
        if self.again.remove(&run) {
            self.pending.insert(run);
        }
    }

    /// Delays the run. Logs the message once, unless it is the store's.
    fn delay_retry(&mut self, run: &RunId, message: Option<String>) {
        // Forget runs that another server took over or that were deleted.
        let now = Instant::now();
        self.resting.retain(|_, rest| now < rest.until + FORGET_FAILED_AFTER);
        let rest =
            self.resting.entry(run.clone()).or_insert(FailedRun { until: now, failures: 0, told: String::new() });
        let delay = MIN_RETRY_DELAY.saturating_mul(1 << rest.failures.min(16)).min(MAX_RETRY_DELAY);
        rest.until = now + delay;
        rest.failures = rest.failures.saturating_add(1);
        if let Some(message) = message
            && rest.told != message
        {
            tracing::error!(run.id = %run, error = message, "a run could not be driven; retrying");
            rest.told = message;
        }
    }
}
