//! Precomputes the decision that follows a report, so that one transaction commits both.
//!
//! The decision is computed from what the last decision left in the cache: revision, end of the log, state and steps.
//! The store commits it only if all of these hold:
//!
//! - The run's revision is the same: no other decision, no change of status.
//! - The owner fence holds.
//! - The log ends exactly one event after the cached end.
//! - This report appended that event.
//!
//! The last two conditions belong together. A signal or another report in between makes the log longer. A report that
//! appended nothing (a lost lease, a second copy) must not be mistaken for another event, for example the end of its
//! lease.

use nightshift_protocol::id::RunId;
use serde_json::Value;

use super::decision_cache::CachedRun;
use super::ledger::Standing;
use super::{Decision, Driver};
use crate::event::Event;
use crate::store::{Advance, Advanced, Report, Reported, TryEnd};

/// A precomputed decision.
///
/// Commit [`Change::Report`](crate::store::Change::Report) and then [`Change::Advance`](crate::store::Change::Advance)
/// with `advance`. Then call [`Driver::settle`] with the outcomes.
#[derive(Debug)]
pub struct PrecomputedDecision {
    /// The decision.
    pub advance: Box<Advance>,
    /// State to cache after the commit. Drop it when the commit failed.
    pub ticket: PendingDecision,
}

/// The exclusive right to cache a run, held for one report at a time.
#[derive(Debug)]
pub struct PendingDecision {
    run: RunId,
    ends: bool,
    /// Keys of the steps that the decision schedules.
    begins: Vec<String>,
    /// The run after the decision, without the decision's own events.
    next: CachedRun,
}

impl PendingDecision {
    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }
}

/// Outcome of a precomputed decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is committed, and nothing more is to do.
    Decided,
    /// It is committed, and the run has ended.
    Ended,
    /// The report is committed. The decision is not, or another decision is due: drive the run.
    Drive,
    /// The lease of the report was lost. Nothing was changed.
    LeaseLost,
    /// The report is committed, and another server decides for the run.
    NotOwner,
}

impl Driver {
    /// Returns the decision that follows this report, or `None` if the run of its step is not cached or another report
    /// has taken it.
    ///
    /// After `None`, commit the report alone and drive the run.
    #[must_use]
    pub fn precompute_decision(&self, report: &Report) -> Option<PrecomputedDecision> {
        let is_foreseeable = match &report.end {
            TryEnd::Completed { output } => !holds_nul(output),
            TryEnd::Failed { failure } => !failure.message.contains('\0') && !failure.code.contains('\0'),
            TryEnd::Retry { .. } | TryEnd::Wait { .. } | TryEnd::Cancelled => false,
        };
        if !is_foreseeable {
            return None;
        }
        let (run, mut known) = self.cache().take(&report.step)?;
        let key = known.ledger.open_key(&report.step)?.to_owned();
        let (event, standing, failed) = match report.end.clone() {
            TryEnd::Completed { output } => (Event::StepCompleted { key, output }, Standing::Over, None),
            TryEnd::Failed { failure } => {
                let failed = (!self.workflow.outlives(&failure)).then(|| failure.clone());
                let standing = Standing::Failed(Box::new(failure.clone()));
                (Event::StepFailed { key, failure }, standing, failed)
            }
            TryEnd::Retry { .. } | TryEnd::Wait { .. } | TryEnd::Cancelled => return None,
        };
        known.ledger.end(event.step_key()?, standing);
        // The driver reports a message or a state that cannot be read.
        let state = self.workflow.apply(Some(known.state), &event).ok()?;
        let Decision { schedule, mut end, awaits } = self.decide(&state, failed).ok()?;
        if end.is_none() && awaits.is_empty() {
            end = super::dead_end(&known.ledger, &schedule);
        }
        let digest = self.workflow.digest(&state).ok()?;
        let written = self.workflow.write(&state, Some(&known.stored)).ok()?;
        let begins = if end.is_some() { Vec::new() } else { known.ledger.begin(&schedule) };
        let folded_seq = known.last_seq + 1;
        let ticket = PendingDecision {
            run: run.clone(),
            ends: end.is_some(),
            begins,
            next: CachedRun { stored: state.clone(), state, last_seq: folded_seq, ..known },
        };
        let advance = Advance {
            run,
            revision: ticket.next.revision,
            folded_seq,
            expects_last_seq: Some(folded_seq),
            state: Some(written),
            digest,
            schedule,
            end,
            awaits,
            fence: ticket.next.fence.clone(),
            at: self.clock.now(),
        };
        Some(PrecomputedDecision { advance: Box::new(advance), ticket })
    }

    /// Records the outcome of a precomputed decision. A committed one is cached for the next report.
    #[must_use = "a run may have to be driven"]
    pub fn settle(&self, ticket: PendingDecision, reported: Reported, advanced: &Advanced) -> Settled {
        let Advanced::Committed { revision, last_seq } = *advanced else {
            return match (reported, advanced) {
                (Reported::LeaseLost, _) => Settled::LeaseLost,
                (Reported::Committed, Advanced::NotOwner) => Settled::NotOwner,
                (Reported::Committed, _) => Settled::Drive,
            };
        };
        if ticket.ends {
            return Settled::Ended;
        }
        if self.remember(ticket.run, revision, last_seq, &ticket.begins, ticket.next) {
            Settled::Decided
        } else {
            Settled::Drive
        }
    }

    /// Caches a run whose decision was committed and scheduled these steps.
    ///
    /// Returns false if the log holds events that the cache does not know. Nothing is cached then, and a decision may
    /// be due.
    pub(super) fn remember(
        &self,
        id: RunId,
        revision: u64,
        last_seq: u64,
        begins: &[String],
        mut run: CachedRun,
    ) -> bool {
        let own = u64::try_from(begins.len()).unwrap_or(u64::MAX);
        if run.last_seq.saturating_add(own) != last_seq {
            return false;
        }
        for key in begins {
            match self.workflow.apply(Some(run.state), &Event::StepScheduled { key: key.clone() }) {
                Ok(state) => run.state = state,
                // The driver reads the run again and reports the error.
                Err(_) => return false,
            }
        }
        (run.revision, run.last_seq) = (revision, last_seq);
        self.cache().put(id, run);
        true
    }
}

/// Returns whether the value contains a NUL character. The store replaces those, so the state folded later would
/// differ.
fn holds_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || holds_nul(value)),
    }
}
