//! The one loop that moves a run: load, apply, decide, commit. Everything in it can be repeated.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::step::StepFailure;
use serde_json::Value;

use crate::clock::{Clock, Random};
use crate::event::Event;
use crate::store::{Advance, Advanced, CreatedRun, OwnerFence, RunRecord, Store, StoreError};
use crate::workflow::{AnyState, AnyWorkflow, Command, StepOrder, StoredState, WorkflowError};

mod foresight;
mod ledger;
mod memory;

use self::ledger::Ledger;
use self::memory::{Memory, Remembered};

pub use self::foresight::{Foreseen, Settled, Ticket};
pub use self::memory::{MAX_REMEMBERED_BYTES, MAX_REMEMBERED_RUN_BYTES, MAX_REMEMBERED_RUNS};

/// Events that are read at once; an advance folds page after page, all that there are.
pub const MAX_EVENTS_PER_READ: u32 = 1_000;
/// Conflicts in a row after which the run is left to the next round.
pub const MAX_CONFLICTS: u32 = 16;

/// Why a run could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The workflow cannot read the history.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// A step's key fits no id.
    #[error("too many conflicting writers on run {0}")]
    Conflicts(RunId),
}

/// What moving a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driven {
    /// There was nothing to do.
    Idle,
    /// It advanced; steps may be ready.
    Advanced,
    /// It ended.
    Ended,
    /// It belongs to another server now; what was advanced before stays.
    NotOwner,
}

/// Moves runs. Copies share what they remember.
#[derive(Clone)]
pub struct Driver {
    store: Arc<dyn Store>,
    workflow: Arc<dyn AnyWorkflow>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    memory: Arc<Mutex<Memory>>,
}

impl Driver {
    /// A driver over these ports.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        workflow: Arc<dyn AnyWorkflow>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self { store, workflow, clock, random, memory: Arc::default() }
    }

    /// Moves one run as far as its log allows. With a fence, only as long as the run belongs to that server.
    pub async fn drive(&self, run: &RunId, fence: Option<&OwnerFence>) -> Result<Driven, DriveError> {
        self.drive_on(run, fence, None).await
    }

    /// As [`Self::drive`], for a run that this process has just created: nothing is read for its first decision. Should
    /// it have changed meanwhile, the decision does not commit, and what is stored is read.
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
        loop {
            let next = self.next_advance(run, created.take()).await?;
            let Some(Next { mut advance, known }) = next else { return Ok(driven) };
            advance.fence = fence.cloned();
            let ends = advance.end.is_some();
            // What is remembered once it is committed; the store takes the rest.
            let known = known.filter(|_| !ends).map(|(state, mut ledger)| {
                let begins = ledger.begin(&advance.schedule);
                let run = Remembered {
                    revision: 0,
                    last_seq: advance.folded_seq,
                    stored: state.clone(),
                    state,
                    ledger,
                    fence: fence.cloned(),
                };
                (begins, run)
            });
            match self.store.advance(advance).await? {
                Advanced::Committed { .. } if ends => {
                    self.forget(run);
                    return Ok(Driven::Ended);
                }
                Advanced::Committed { revision, last_seq } => {
                    driven = Driven::Advanced;
                    // Nothing else was in the log: what comes later wakes whoever drives.
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

    /// Forgets what was remembered of a run.
    pub fn forget(&self, run: &RunId) {
        self.memory().forget(run);
    }

    /// How many runs are remembered, and about how many bytes that takes.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        self.memory().size()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // What is remembered may always be wrong: a panic elsewhere makes it no worse.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next_advance(&self, run: &RunId, created: Option<CreatedRun>) -> Result<Option<Next>, DriveError> {
        let is_created = created.is_some();
        let (record, folded) = if let Some(CreatedRun { run, input }) = created {
            (run, self.fold_first(input)?)
        } else {
            let record = self.store.load_run(run).await?;
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
        if !folded.asks_for_a_decision && record.status != RunStatus::Cancelling {
            return Ok(None);
        }
        let Some(state) = folded.state else { return Ok(None) };

        let mut decision = Decision::default();
        let mut ledger = None;
        let mut expects_last_seq = None;
        if record.status == RunStatus::Cancelling {
            if !self.has_open_steps(run).await? {
                decision.end = Some((RunTransition::CancelFinished, Event::RunCancelled));
            } else if !folded.asks_for_a_decision {
                return Ok(None);
            }
        } else {
            decision = self.decide(&state, folded.failed)?;
            if decision.end.is_none() && decision.awaits.is_empty() {
                let heads = if is_created { Vec::new() } else { self.store.list_step_heads(run).await? };
                let steps = Ledger::of(heads);
                decision.end = dead_end(&steps, &decision.schedule);
                if decision.end.is_some() {
                    // A step may have ended after the log was read: its event comes with the next look, and if it comes
                    // before the commit, this is no end.
                    if !self.store.events_after(run, folded.seq, 1).await?.is_empty() {
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

    /// What follows in this state, after a failure that the run does not outlive or without one.
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

    /// The state after everything in the log. What the last decision itself caused asks for no other one; it is folded
    /// together with the next real event.
    async fn fold(&self, record: &RunRecord) -> Result<Folded, DriveError> {
        let state = record.state.as_ref().map(|document| self.workflow.read(document)).transpose()?;
        // A state without parts may be of an earlier format: all of its parts are written.
        let stored = state.clone().filter(|_| record.state_parts > 0);
        let mut folded = Folded { state, stored, seq: record.folded_seq, asks_for_a_decision: false, failed: None };
        loop {
            let page = self.store.events_after(&record.id, folded.seq, MAX_EVENTS_PER_READ).await?;
            for event in &page {
                folded.state = Some(self.workflow.apply(folded.state.take(), &event.event)?);
                folded.seq = event.seq;
                folded.asks_for_a_decision |= event.event.asks_for_a_decision();
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

    /// The state after the creation alone.
    fn fold_first(&self, input: Value) -> Result<Folded, DriveError> {
        let event = Event::RunCreated { input };
        let state = Some(self.workflow.apply(None, &event)?);
        Ok(Folded { state, stored: None, seq: 1, asks_for_a_decision: event.asks_for_a_decision(), failed: None })
    }

    /// The end of a cancelled run whose history this release cannot read: it must not stand in the way forever. State
    /// and digest stay as they are; a run that never had a state gets the state `null`.
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
        Ok(self.store.list_step_heads(run).await?.iter().any(|step| !step.status.is_final()))
    }
}

/// What the log of a run comes to.
struct Folded {
    state: Option<AnyState>,
    /// The state as it is stored, when its parts are.
    stored: Option<AnyState>,
    seq: u64,
    asks_for_a_decision: bool,
    /// The failure of a step that nobody has retried.
    failed: Option<StepFailure>,
}

/// A decision to be committed.
struct Next {
    advance: Advance,
    /// The state and the steps that it was made from, as far as it looked at the steps.
    known: Option<(AnyState, Ledger)>,
}

/// What follows.
#[derive(Default)]
struct Decision {
    schedule: Vec<(StepId, StepOrder)>,
    end: Option<(RunTransition, Event)>,
    awaits: Vec<String>,
}

/// The end of a run that would wait forever: nothing is open, and everything that is wanted was tried before. It happens
/// when one of several failed steps was retried: the others still stand in the way.
fn dead_end(steps: &Ledger, schedule: &[(StepId, StepOrder)]) -> Option<(RunTransition, Event)> {
    if steps.has_open_steps() || steps.begins_any(schedule) {
        return None;
    }
    let failure = steps.failure().cloned().unwrap_or_else(|| {
        StepFailure::fatal("run.stuck", "the strategy waits for steps that are over; this is a defect of the program")
    });
    Some((RunTransition::Fail, Event::RunFailed { failure }))
}
