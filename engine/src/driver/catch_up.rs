//! Decides from the cached run and the events after it, without loading the run and its steps.
//!
//! This is the usual path of a report through another server, and of another try. It applies while only steps ended or
//! were retried: every other change of a run has an event of another kind, or raises the revision that the commit
//! checks.

use nightshift_protocol::id::RunId;

use super::decision_cache::CachedRun;
use super::ledger::Standing;
use super::{Decision, DriveError, Driver, MAX_EVENTS_PER_READ, Next, dead_end};
use crate::event::{Event, EventRecord};
use crate::store::{Advance, OwnerFence};

/// Outcome of [`Driver::catch_up`].
pub(super) enum CaughtUp {
    /// No decision is due.
    Idle,
    /// This decision is due.
    Decides(Box<Next>),
    /// The cache is of no use. The run has to be loaded.
    Load,
}

impl Driver {
    /// Folds the events after the cached run, if there is one under this fence, and decides.
    ///
    /// A run that could not be caught up is no longer cached.
    pub(super) async fn catch_up(&self, run: &RunId, fence: Option<&OwnerFence>) -> Result<CaughtUp, DriveError> {
        let known = self.cache().forget(run);
        let Some(known) = known.filter(|known| known.fence.as_ref() == fence) else { return Ok(CaughtUp::Load) };
        let page = self.runs.events_after(run, known.last_seq, MAX_EVENTS_PER_READ).await?;
        if page.len() >= usize::try_from(MAX_EVENTS_PER_READ).unwrap_or(usize::MAX) {
            return Ok(CaughtUp::Load);
        }
        Ok(self.decide_cached(run, known, &page).unwrap_or(CaughtUp::Load))
    }

    /// Returns `None` if the events are of another kind, or if the workflow reports an error. The driver reports it when
    /// it has loaded the run.
    fn decide_cached(&self, run: &RunId, mut known: CachedRun, page: &[EventRecord]) -> Option<CaughtUp> {
        let mut failed = None;
        let mut requires_decision = false;
        for EventRecord { seq, event, .. } in page {
            match event {
                Event::StepCompleted { key, .. } => known.ledger.end(key, Standing::Over),
                Event::StepFailed { key, failure } => {
                    known.ledger.end(key, Standing::Failed(Box::new(failure.clone())));
                    if !self.workflow.outlives(failure) {
                        failed = Some(failure.clone());
                    }
                }
                Event::StepRetried { .. } => {}
                _ => return None,
            }
            known.state = self.workflow.apply(Some(known.state), event).ok()?;
            known.last_seq = *seq;
            requires_decision |= event.requires_decision();
        }
        if !requires_decision {
            self.cache().put(run.clone(), known);
            return Some(CaughtUp::Idle);
        }
        let Decision { schedule, mut end, awaits } = self.decide(&known.state, failed).ok()?;
        let mut expects_last_seq = None;
        if end.is_none() && awaits.is_empty() {
            end = dead_end(&known.ledger, &schedule);
            // If another step has ended meanwhile, the run has not ended.
            expects_last_seq = end.is_some().then_some(known.last_seq);
        }
        let advance = Advance {
            run: run.clone(),
            revision: known.revision,
            folded_seq: known.last_seq,
            expects_last_seq,
            state: Some(self.workflow.write(&known.state, Some(&known.stored)).ok()?),
            digest: self.workflow.digest(&known.state).ok()?,
            schedule,
            end,
            awaits,
            fence: None,
            at: self.clock.now(),
        };
        let next = Next { advance, known: Some((known.state, known.ledger)) };
        Some(CaughtUp::Decides(Box::new(next)))
    }
}
