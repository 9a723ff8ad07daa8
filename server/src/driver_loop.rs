//! Drives runs: many at once, each by one task at a time. Wake-ups say which; a slow look into the store is the truth.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::driver::{DriveError, Driven, Driver};
use nightshift_protocol::id::RunId;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::app::App;
use crate::backoff::Backoff;

/// How often the store is asked for runs to drive.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Runs that are driven at once.
const MAX_AT_ONCE: usize = 16;
/// Runs that one look into the store gives.
const MAX_PER_LOOK: u32 = 1_000;
/// How long a run that cannot be driven is left alone, at first and at most.
const FIRST_REST: Duration = Duration::from_millis(250);
const LONGEST_REST: Duration = Duration::from_mins(1);

/// What this loop does, in complaints.
const LOOKING: &str = "looking for runs to drive";
const DRIVING: &str = "driving a run";

/// A run that could not be driven.
struct Rest {
    until: Instant,
    failures: u32,
    /// What was logged last.
    told: String,
}

/// The loop. Ends with the server.
pub(crate) async fn run(app: Arc<App>) {
    let mut state = State::new(app.clone());
    let mut look_at = Instant::now();
    let mut backoff = Backoff::default();
    loop {
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            Some(done) = state.tasks.join_next_with_id(), if !state.tasks.is_empty() => state.done(done),
            () = app.wake.mail() => {
                let mail = app.wake.take_mail();
                state.pending.extend(mail.runs);
                if mail.look_again {
                    look_at = Instant::now();
                }
            }
            () = tokio::time::sleep_until(look_at) => match app.store.runs_to_drive(MAX_PER_LOOK).await {
                Ok(runs) => {
                    state.pending.extend(runs);
                    backoff.succeeded();
                    app.complaints.worked(LOOKING);
                    look_at = Instant::now() + LOOK_EVERY;
                }
                Err(error) => {
                    app.trouble.note_error::<()>(&Err(error.clone()));
                    app.complaints.failed(LOOKING, &error);
                    look_at = Instant::now() + backoff.failed();
                }
            },
        }
        state.start_pending();
    }
}

struct State {
    app: Arc<App>,
    driver: Driver,
    pending: HashSet<RunId>,
    again: HashSet<RunId>,
    resting: HashMap<RunId, Rest>,
    running: HashMap<Id, RunId>,
    tasks: JoinSet<Result<Driven, DriveError>>,
}

impl State {
    fn new(app: Arc<App>) -> Self {
        let driver = Driver::new(app.store.clone(), app.workflow.clone(), app.clock.clone(), app.random.clone());
        Self {
            app,
            driver,
            pending: HashSet::new(),
            again: HashSet::new(),
            resting: HashMap::new(),
            running: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    fn start_pending(&mut self) {
        let now = Instant::now();
        for run in std::mem::take(&mut self.pending) {
            if self.running.values().any(|running| *running == run) {
                self.again.insert(run);
            } else if self.resting.get(&run).is_some_and(|rest| rest.until > now) {
                // The next look into the store finds it again.
            } else if self.running.len() < MAX_AT_ONCE {
                let driver = self.driver.clone();
                let id = run.clone();
                let handle = self.tasks.spawn(async move { driver.drive(&id).await });
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
                        self.app.trouble.note_error::<()>(&Err(error.clone()));
                        self.app.complaints.failed(DRIVING, &error);
                        None
                    }
                    error => Some(error.to_string()),
                }),
            ),
            Err(error) => (error.id(), Err(Some(format!("the driver panicked: {error}")))),
        };
        let Some(run) = self.running.remove(&id) else { return };
        match result {
            Ok(driven) => {
                if self.resting.remove(&run).is_some_and(|rest| !rest.told.is_empty()) {
                    tracing::info!(run.id = %run, "the run can be driven again");
                }
                if driven != Driven::Idle {
                    self.app.trouble.note(&Ok(()));
                    self.app.complaints.worked(DRIVING);
                    self.app.wake.ring(&run);
                    self.app.wake.work_ready();
                }
            }
            Err(message) => self.rest(&run, message),
        }
        if self.again.remove(&run) {
            self.pending.insert(run);
        }
    }

    /// Leaves the run alone for a while. The message, unless it is the store's, is logged once.
    fn rest(&mut self, run: &RunId, message: Option<String>) {
        let rest =
            self.resting.entry(run.clone()).or_insert(Rest { until: Instant::now(), failures: 0, told: String::new() });
        let delay = FIRST_REST.saturating_mul(1 << rest.failures.min(16)).min(LONGEST_REST);
        rest.until = Instant::now() + delay;
        rest.failures = rest.failures.saturating_add(1);
        if let Some(message) = message
            && rest.told != message
        {
            tracing::error!(run.id = %run, error = message, "a run could not be driven; it is tried again");
            rest.told = message;
        }
    }
}
