//! The loop that advances a run: load, apply, decide, commit. Every step of it can be repeated.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::step::StepFailure;
use serde_json::Value;

use crate::clock::{Clock, Random};
use crate::event::Event;
use crate::store::{Advance, Advanced, ChangeStore, CreatedRun, OwnerFence, RunRecord, RunStore, StoreError};
use crate::workflow::{AnyState, AnyWorkflow, Command, StepOrder, StoredState, WorkflowError};

mod catch_up;
mod decision_cache;
mod ledger;
mod precompute;

use self::catch_up::CaughtUp;
use self::decision_cache::{CachedRun, DecisionCache};
use self::ledger::Ledger;

pub use self::decision_cache::{MAX_CACHED_BYTES, MAX_CACHED_RUN_BYTES, MAX_CACHED_RUNS};
pub use self::precompute::{PendingDecision, PrecomputedDecision, Settled};

/// Events per read. An advance folds all pages of the log.
pub const MAX_EVENTS_PER_READ: u32 = 1_000;
/// Consecutive conflicts after which the driver leaves the run to the next round.
pub const MAX_CONFLICTS: u32 = 16;

/// Why a run could not be advanced.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The store reported an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The workflow cannot read the history.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// Other decisions for the run were committed in between, [`MAX_CONFLICTS`] times in a row.
    #[error("too many conflicting writers on run {0}")]
    Conflicts(RunId),
}

/// Outcome of [`Driver::drive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driven {
    /// There was nothing to do.
    Idle,
    /// It advanced; steps may be ready.
    Advanced,
    /// It ended.
    Ended,
    /// It belongs to another server now. Decisions that were committed before stay.
    NotOwner,
}

/// Advances runs. Clones share the decision cache.
#[derive(Clone)]
pub struct Driver {
    runs: Arc<dyn RunStore>,
    changes: Arc<dyn ChangeStore>,
    workflow: Arc<dyn AnyWorkflow>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    cache: Arc<Mutex<DecisionCache>>,
}

impl Driver {
    /// Creates a driver over these ports.
    #[must_use]
    pub fn new(
        runs: Arc<dyn RunStore>,
        changes: Arc<dyn ChangeStore>,
        workflow: Arc<dyn AnyWorkflow>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self { runs, changes, workflow, clock, random, cache: Arc::default() }
    }

    /// Advances one run as far as its log allows. With a fence, only while the run belongs to that server.
    pub async fn drive(&self, run: &RunId, fence: Option<&OwnerFence>) -> Result<Driven, DriveError> {
        self.drive_on(run, fence, None).await
    }

    /// Advances a run that this process has just created, without reading it for the first decision.
    ///
    /// If the run has changed since, the decision does not commit, and the driver reads the stored run. See
    /// [`Self::drive`].
    pub async fn drive_created(&self, run: CreatedRun, fence: Option<&OwnerFence>) -> Result<Driven, DriveError> {
        let id = run.run.id.clone();
        self.drive_on(&id, fence, Some(run)).await
    }

    async fn drive_on(
        &self,
        run: &RunId,
        fence: Option<&OwnerFence>,
        mut created: Option<CreatedRun>,
    ) -> Result<Driven, DriveError> {
        let mut driven = Driven::Idle;
        let mut conflicts = 0;
        let mut caught_up = if created.is_none() { self.catch_up(run, fence).await? } else { CaughtUp::Load };
        loop {
            let next = match std::mem::replace(&mut caught_up, CaughtUp::Load) {
                CaughtUp::Idle => None,
                CaughtUp::Decides(next) => Some(*next),
                CaughtUp::Load => self.next_advance(run, created.take()).await?,
            };
            let Some(Next { mut advance, known }) = next else { return Ok(driven) };
            advance.fence = fence.cloned();
            let ends = advance.end.is_some();
            // The cache takes this once it is committed. The store takes the rest.
            let known = known.filter(|_| !ends).map(|(state, mut ledger)| {
                let begins = ledger.begin(&advance.schedule);
                let run = CachedRun {
                    revision: 0,
                    last_seq: advance.folded_seq,
                    stored: state.clone(),
                    state,
                    ledger,
                    fence: fence.cloned(),
                };
                (begins, run)
            });
            match self.changes.advance(advance).await? {
                Advanced::Committed { .. } if ends => {
                    self.forget(run);
                    return Ok(Driven::Ended);
                }
                Advanced::Committed { revision, last_seq } => {
                    driven = Driven::Advanced;
                    // The log holds no other event. A later event wakes the server that drives the run.
                    if let Some((begins, known)) = known
                        && self.remember(run.clone(), revision, last_seq, &begins, known)
                    {
                        return Ok(driven);
                    }
                }
                Advanced::NotOwner => {
                    self.forget(run);
                    return Ok(Driven::NotOwner);
                }
                Advanced::Conflict => {
                    conflicts += 1;
                    if conflicts >= MAX_CONFLICTS {
                        return Err(DriveError::Conflicts(run.clone()));
                    }
                }
            }
        }
    }

    /// Removes a run from the cache.
    pub fn forget(&self, run: &RunId) {
        self.cache().forget(run);
    }

    /// Returns the number of cached runs and their approximate size in bytes.
    #[must_use]
    pub fn cached(&self) -> (usize, usize) {
        self.cache().size()
    }

    fn cache(&self) -> MutexGuard<'_, DecisionCache> {
        // A cached run may always be outdated, so a panic elsewhere does no further harm.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next_advance(&self, run: &RunId, created: Option<CreatedRun>) -> Result<Option<Next>, DriveError> {
        let is_created = created.is_some();
        let (record, folded) = if let Some(CreatedRun { run, input }) = created {
            (run, self.fold_first(input)?)
        } else {
            let record = self.runs.load_run(run).await?;
            if record.status.is_final() {
                return Ok(None);
            }
            let folded = match self.fold(&record).await {
                Err(DriveError::Workflow(_)) if record.status == RunStatus::Cancelling => {
                    return self.end_unreadable(record).await;
                }
                folded => folded?,
            };
            (record, folded)
        };
        if !folded.requires_decision && record.status != RunStatus::Cancelling {
            return Ok(None);
        }
        let Some(state) = folded.state else { return Ok(None) };

        let mut decision = Decision::default();
        let mut ledger = None;
        let mut expects_last_seq = None;
        if record.status == RunStatus::Cancelling {
            if !self.has_open_steps(run).await? {
                decision.end = Some((RunTransition::CancelFinished, Event::RunCancelled));
            } else if !folded.requires_decision {
                return Ok(None);
            }
        } else {
            decision = self.decide(&state, folded.failed)?;
            if decision.end.is_none() && decision.awaits.is_empty() {
                let heads = if is_created { Vec::new() } else { self.runs.list_step_heads(run).await? };
                let steps = Ledger::of(heads);
                decision.end = dead_end(&steps, &decision.schedule);
                if decision.end.is_some() {
                    // A step may have ended after the log was read. Its event is read in the next round. If it arrives
                    // before this commit, the run has not ended.
                    if !self.runs.events_after(run, folded.seq, 1).await?.is_empty() {
                        decision.end = None;
                    }
                    expects_last_seq = Some(folded.seq);
                }
                ledger = Some(steps);
            }
        }
        let digest = self.workflow.digest(&state)?;
        let written = self.workflow.write(&state, folded.stored.as_ref())?;
        let Decision { schedule, end, awaits } = decision;
        let advance = Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq: folded.seq,
            expects_last_seq,
            state: Some(written),
            digest,
            schedule,
            end,
            awaits,
            fence: None,
            at: self.clock.now(),
        };
        Ok(Some(Next { advance, known: ledger.map(|ledger| (state, ledger)) }))
    }

    /// Decides what follows in this state. `failed` is a failure that the workflow does not continue after.
    fn decide(&self, state: &AnyState, failed: Option<StepFailure>) -> Result<Decision, WorkflowError> {
        let mut decision = Decision::default();
        if let Some(failure) = failed {
            decision.end = Some((RunTransition::Fail, Event::RunFailed { failure }));
            return Ok(decision);
        }
        for command in self.workflow.decide(state)? {
            match command {
                Command::Schedule(order) => {
                    decision.schedule.push((StepId::from_uuid(uuid::Uuid::from_u128(self.random.uuid())), order));
                }
                Command::Await { signal } => decision.awaits.push(signal),
                Command::Complete { result } => {
                    decision.end = Some((RunTransition::Complete, Event::RunCompleted { result }));
                }
            }
        }
        Ok(decision)
    }

    /// Folds the whole log into the state. Events that the last decision itself caused ask for no decision: they are
    /// folded together with the next other event.
    async fn fold(&self, record: &RunRecord) -> Result<Folded, DriveError> {
        let state = record.state.as_ref().map(|document| self.workflow.read(document)).transpose()?;
        // A state without parts may be of an earlier format, so all of its parts are written.
        let stored = state.clone().filter(|_| record.state_parts > 0);
        let mut folded = Folded { state, stored, seq: record.folded_seq, requires_decision: false, failed: None };
        loop {
            let page = self.runs.events_after(&record.id, folded.seq, MAX_EVENTS_PER_READ).await?;
            for event in &page {
                folded.state = Some(self.workflow.apply(folded.state.take(), &event.event)?);
                folded.seq = event.seq;
                folded.requires_decision |= event.event.requires_decision();
                match &event.event {
                    Event::StepFailed { failure, .. } if !self.workflow.outlives(failure) => {
                        folded.failed = Some(failure.clone());
                    }
                    Event::RunRetried { .. } => folded.failed = None,
                    _ => {}
                }
            }
            if page.is_empty() || folded.seq >= record.last_seq {
                return Ok(folded);
            }
        }
    }

    /// Returns the state after the creation event alone.
    fn fold_first(&self, input: Value) -> Result<Folded, DriveError> {
        let event = Event::RunCreated { input };
        let state = Some(self.workflow.apply(None, &event)?);
        Ok(Folded { state, stored: None, seq: 1, requires_decision: event.requires_decision(), failed: None })
    }

    /// Ends a cancelled run whose history this release cannot read, so that it does not block the queue forever.
    ///
    /// State and digest stay as they are. A run that never had a state gets the state `null`.
    async fn end_unreadable(&self, record: RunRecord) -> Result<Option<Next>, DriveError> {
        if self.has_open_steps(&record.id).await? {
            return Ok(None);
        }
        let advance = Advance {
            run: record.id,
            revision: record.revision,
            folded_seq: if record.state.is_some() { record.folded_seq } else { record.last_seq },
            expects_last_seq: None,
            state: record.state.is_none().then(StoredState::default),
            digest: record.digest,
            schedule: Vec::new(),
            end: Some((RunTransition::CancelFinished, Event::RunCancelled)),
            awaits: Vec::new(),
            fence: None,
            at: self.clock.now(),
        };
        Ok(Some(Next { advance, known: None }))
    }

    async fn has_open_steps(&self, run: &RunId) -> Result<bool, DriveError> {
        Ok(self.runs.list_step_heads(run).await?.iter().any(|step| !step.status.is_final()))
    }
}

/// The folded log of a run.
struct Folded {
    state: Option<AnyState>,
    /// The stored state, if its parts are stored.
    stored: Option<AnyState>,
    seq: u64,
    requires_decision: bool,
    /// The failure of a step that was not retried.
    failed: Option<StepFailure>,
}

/// A decision to commit.
struct Next {
    advance: Advance,
    /// The state and the steps that the decision was made from, if it read the steps.
    known: Option<(AnyState, Ledger)>,
}

/// What follows.
#[derive(Default)]
struct Decision {
    schedule: Vec<(StepId, StepOrder)>,
    end: Option<(RunTransition, Event)>,
    awaits: Vec<String>,
}

/// Returns the end of a run that would wait forever: nothing is open, and every wanted step was tried before.
///
/// This happens when one of several failed steps was retried and the other failed steps still block the run.
fn dead_end(steps: &Ledger, schedule: &[(StepId, StepOrder)]) -> Option<(RunTransition, Event)> {
    if steps.has_open_steps() || steps.begins_any(schedule) {
        return None;
    }
    let failure = steps.failure().cloned().unwrap_or_else(|| {
        StepFailure::fatal("run.stuck", "the strategy waits for steps that are over; this is a defect of the program")
    });
    Some((RunTransition::Fail, Event::RunFailed { failure }))
}
