//! The one loop that moves a run: load, apply, decide, commit. Everything in it can be repeated.

use std::sync::Arc;

use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::step::StepFailure;

use crate::clock::{Clock, Random};
use crate::event::Event;
use crate::store::{Advance, Advanced, Store, StoreError};
use crate::workflow::{Command, Workflow, WorkflowError};

/// Events folded in one advance.
pub const MAX_EVENTS_PER_ADVANCE: u32 = 1_000;
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

    /// Moves one run as far as its log allows.
    pub async fn drive(&self, run: &RunId) -> Result<Driven, DriveError> {
        let mut driven = Driven::Idle;
        let mut conflicts = 0;
        loop {
            let Some(advance) = self.next_advance(run).await? else { return Ok(driven) };
            let ends = advance.end.is_some();
            match self.store.advance(advance).await? {
                Advanced::Committed if ends => return Ok(Driven::Ended),
                Advanced::Committed => driven = Driven::Advanced,
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
        let events = self.store.events_after(run, record.folded_seq, MAX_EVENTS_PER_ADVANCE).await?;
        let more = events.len() >= usize::try_from(MAX_EVENTS_PER_ADVANCE).unwrap_or(usize::MAX);
        // What the last decision itself caused asks for no other one; it is folded together with the next real event.
        let asks_for_a_decision = more || events.iter().any(|event| event.event.asks_for_a_decision());
        if !asks_for_a_decision && record.status != RunStatus::Cancelling {
            return Ok(None);
        }
        let mut state = record.state;
        let mut folded_seq = record.folded_seq;
        let mut failed: Option<StepFailure> = None;
        for event in &events {
            state = Some(self.workflow.apply(state, &event.event)?);
            folded_seq = event.seq;
            match &event.event {
                Event::StepFailed { failure, .. } => failed = Some(failure.clone()),
                Event::RunRetried { .. } => failed = None,
                _ => {}
            }
        }
        let Some(state) = state else { return Ok(None) };

        let mut schedule = Vec::new();
        let mut end = None;
        if record.status == RunStatus::Cancelling {
            let open = self.store.list_steps(run).await?.iter().any(|step| !step.status.is_final());
            if open {
                if !asks_for_a_decision {
                    return Ok(None);
                }
            } else {
                end = Some((RunTransition::CancelFinished, Event::RunCancelled));
            }
        } else if let Some(failure) = failed {
            end = Some((RunTransition::Fail, Event::RunFailed { failure }));
        } else if !more {
            for command in self.workflow.decide(&state)? {
                match command {
                    Command::Schedule(order) => {
                        schedule.push((StepId::from_uuid(uuid_from(self.random.uuid())), order));
                    }
                    Command::Complete { result } => {
                        end = Some((RunTransition::Complete, Event::RunCompleted { result }));
                    }
                }
            }
        }
        let digest = self.workflow.digest(&state)?;
        Ok(Some(Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq,
            state,
            digest,
            schedule,
            end,
            at: self.clock.now(),
        }))
    }
}

fn uuid_from(bits: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(bits)
}
