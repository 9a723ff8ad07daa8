//! The one loop that moves a run: load, apply, decide, commit. Everything in it can be repeated.

use std::sync::Arc;

use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use serde_json::Value;

use crate::clock::{Clock, Random};
use crate::event::Event;
use crate::store::{Advance, Advanced, OwnerFence, RunRecord, Store, StoreError};
use crate::workflow::{Command, StepOrder, Workflow, WorkflowError};

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

/// Moves runs.
#[derive(Clone)]
pub struct Driver {
    store: Arc<dyn Store>,
    workflow: Arc<dyn Workflow>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Driver {
    /// A driver over these ports.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        workflow: Arc<dyn Workflow>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self { store, workflow, clock, random }
    }

    /// Moves one run as far as its log allows. With a fence, only as long as the run belongs to that server.
    pub async fn drive(&self, run: &RunId, fence: Option<&OwnerFence>) -> Result<Driven, DriveError> {
        let mut driven = Driven::Idle;
        let mut conflicts = 0;
        loop {
            let Some(mut advance) = self.next_advance(run).await? else { return Ok(driven) };
            advance.fence = fence.cloned();
            let ends = advance.end.is_some();
            match self.store.advance(advance).await? {
                Advanced::Committed { .. } if ends => return Ok(Driven::Ended),
                Advanced::Committed { .. } => driven = Driven::Advanced,
                Advanced::NotOwner => return Ok(Driven::NotOwner),
                Advanced::Conflict => {
                    conflicts += 1;
                    if conflicts >= MAX_CONFLICTS {
                        return Err(DriveError::Conflicts(run.clone()));
                    }
                }
            }
        }
    }

    async fn next_advance(&self, run: &RunId) -> Result<Option<Advance>, DriveError> {
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
        if !folded.asks_for_a_decision && record.status != RunStatus::Cancelling {
            return Ok(None);
        }
        let Some(state) = folded.state else { return Ok(None) };

        let mut schedule = Vec::new();
        let mut end = None;
        let mut awaits = Vec::new();
        if record.status == RunStatus::Cancelling {
            if !self.has_open_steps(run).await? {
                end = Some((RunTransition::CancelFinished, Event::RunCancelled));
            } else if !folded.asks_for_a_decision {
                return Ok(None);
            }
        } else if let Some(failure) = folded.failed {
            end = Some((RunTransition::Fail, Event::RunFailed { failure }));
        } else {
            for command in self.workflow.decide(&state)? {
                match command {
                    Command::Schedule(order) => {
                        schedule.push((StepId::from_uuid(uuid_from(self.random.uuid())), order));
                    }
                    Command::Await { signal } => awaits.push(signal),
                    Command::Complete { result } => {
                        end = Some((RunTransition::Complete, Event::RunCompleted { result }));
                    }
                }
            }
            if end.is_none() && awaits.is_empty() {
                end = self.dead_end(&record, folded.seq, &schedule).await?;
            }
        }
        let digest = self.workflow.digest(&state)?;
        Ok(Some(Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq: folded.seq,
            expects_last_seq: None,
            state,
            digest,
            schedule,
            end,
            awaits,
            fence: None,
            at: self.clock.now(),
        }))
    }

    /// The state after everything in the log. What the last decision itself caused asks for no other one; it is folded
    /// together with the next real event.
    async fn fold(&self, record: &RunRecord) -> Result<Folded, DriveError> {
        let mut folded =
            Folded { state: record.state.clone(), seq: record.folded_seq, asks_for_a_decision: false, failed: None };
        loop {
            let page = self.store.events_after(&record.id, folded.seq, MAX_EVENTS_PER_READ).await?;
            for event in &page {
                folded.state = Some(self.workflow.apply(folded.state.take(), &event.event)?);
                folded.seq = event.seq;
                folded.asks_for_a_decision |= event.event.asks_for_a_decision();
                match &event.event {
                    Event::StepFailed { failure, .. } => folded.failed = Some(failure.clone()),
                    Event::RunRetried { .. } => folded.failed = None,
                    _ => {}
                }
            }
            if page.len() < usize::try_from(MAX_EVENTS_PER_READ).unwrap_or(usize::MAX) {
                return Ok(folded);
            }
        }
    }

    /// The end of a run that would wait forever: nothing is open, and everything that is wanted was tried before. It
    /// happens when one of several failed steps was retried: the others still stand in the way.
    async fn dead_end(
        &self,
        record: &RunRecord,
        folded_seq: u64,
        schedule: &[(StepId, StepOrder)],
    ) -> Result<Option<(RunTransition, Event)>, DriveError> {
        let steps = self.store.list_step_heads(&record.id).await?;
        let open = steps.iter().any(|step| !step.status.is_final());
        let begins = schedule.iter().any(|(_, order)| steps.iter().all(|step| step.key != order.key));
        // A step may have ended after the log was read: its event comes with the next look.
        if open || begins || !self.store.events_after(&record.id, folded_seq, 1).await?.is_empty() {
            return Ok(None);
        }
        let failure = steps.into_iter().find_map(|step| step.failure.filter(|_| step.status == StepStatus::Failed));
        let failure = failure.unwrap_or_else(|| {
            StepFailure::fatal(
                "run.stuck",
                "the strategy waits for steps that are over; this is a defect of the program",
            )
        });
        Ok(Some((RunTransition::Fail, Event::RunFailed { failure })))
    }

    /// The end of a cancelled run whose history this release cannot read: it must not stand in the way forever. State
    /// and digest stay as they are; a run that never had a state gets the state `null`.
    async fn end_unreadable(&self, record: RunRecord) -> Result<Option<Advance>, DriveError> {
        if self.has_open_steps(&record.id).await? {
            return Ok(None);
        }
        Ok(Some(Advance {
            run: record.id,
            revision: record.revision,
            folded_seq: if record.state.is_some() { record.folded_seq } else { record.last_seq },
            expects_last_seq: None,
            state: record.state.unwrap_or_default(),
            digest: record.digest,
            schedule: Vec::new(),
            end: Some((RunTransition::CancelFinished, Event::RunCancelled)),
            awaits: Vec::new(),
            fence: None,
            at: self.clock.now(),
        }))
    }

    async fn has_open_steps(&self, run: &RunId) -> Result<bool, DriveError> {
        Ok(self.store.list_step_heads(run).await?.iter().any(|step| !step.status.is_final()))
    }
}

/// What the log of a run comes to.
struct Folded {
    state: Option<Value>,
    seq: u64,
    asks_for_a_decision: bool,
    /// The failure of a step that nobody has retried.
    failed: Option<StepFailure>,
}

fn uuid_from(bits: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(bits)
}
