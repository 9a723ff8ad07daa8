//! The decision that follows a report, made before the report is committed, so that both are one commit.
//!
//! It is made from what the last decision left behind: revision, end of the log, state and steps. The store commits it
//! only if the run's revision is still the same (no other decision, no change of status), the owner fence holds, and the
//! log ends exactly one event after the remembered end, with the event that this very report has just appended. The last
//! condition needs both halves. Whatever came in between, a signal or another report, makes the log longer. And a report
//! that appended nothing, because its lease is lost or it is a second copy, must not be taken for the one event that did
//! come: the end of its lease, for example.

use nightshift_protocol::id::RunId;
use serde_json::Value;

use super::ledger::Standing;
use super::memory::Remembered;
use super::{Decision, Driver};
use crate::event::Event;
use crate::store::{Advance, Advanced, Report, Reported, TryEnd};

/// A decision that was made ahead. Commit [`Change::Report`](crate::store::Change::Report) and this as
/// [`Change::Advance`](crate::store::Change::Advance), in this order, then tell [`Driver::settle`] what became of them.
#[derive(Debug)]
pub struct Foreseen {
    /// The decision.
    pub advance: Box<Advance>,
    /// What is remembered once it is committed. Dropped when the commit failed.
    pub ticket: Ticket,
}

/// The right to remember a run, held by one report at a time.
#[derive(Debug)]
pub struct Ticket {
    run: RunId,
    ends: bool,
    /// Keys of the steps that the decision begins.
    begins: Vec<String>,
    /// The run after the decision, its own events not yet folded.
    next: Remembered,
}

impl Ticket {
    /// The run that it is about.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }
}

/// What a foreseen decision came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is committed; there is nothing more to do.
    Decided,
    /// It is committed, and the run is over.
    Ended,
    /// The report is committed and the decision is not, or something else has to be decided already: drive the run.
    Drive,
    /// The report came too late; nothing was changed.
    LeaseLost,
    /// The report is committed, and another server decides for the run.
    NotOwner,
}

impl Driver {
    /// The decision that follows this report, when the run of its step is remembered and no other report has taken it.
    /// None: commit the report alone, and drive the run.
    #[must_use]
    pub fn foresee(&self, report: &Report) -> Option<Foreseen> {
        let is_foreseeable = match &report.end {
            TryEnd::Completed { output } => !holds_nul(output),
            TryEnd::Failed { failure } => !failure.message.contains('\0') && !failure.code.contains('\0'),
            TryEnd::Retry { .. } | TryEnd::Wait { .. } | TryEnd::Cancelled => false,
        };
        if !is_foreseeable {
            return None;
        }
        let (run, mut known) = self.memory().take(&report.step)?;
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
        // A report or a state that cannot be read is for the driver to complain about.
        let state = self.workflow.apply(Some(known.state), &event).ok()?;
        known.ledger.end(&report.step, standing);
        let Decision { schedule, mut end, awaits } = self.decide(&state, failed).ok()?;
        if end.is_none() && awaits.is_empty() {
            end = super::dead_end(&known.ledger, &schedule);
        }
        let digest = self.workflow.digest(&state).ok()?;
        let written = self.workflow.write(&state, Some(&known.stored)).ok()?;
        let begins = if end.is_some() { Vec::new() } else { known.ledger.begin(&schedule) };
        let folded_seq = known.last_seq + 1;
        let ticket = Ticket {
            run: run.clone(),
            ends: end.is_some(),
            begins,
            next: Remembered { stored: state.clone(), state, last_seq: folded_seq, ..known },
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
        Some(Foreseen { advance: Box::new(advance), ticket })
    }

    /// Takes what became of a foreseen decision: what was committed is remembered for the next report.
    #[must_use = "a run may have to be driven"]
    pub fn settle(&self, ticket: Ticket, reported: Reported, advanced: &Advanced) -> Settled {
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

    /// Remembers a run whose decision was committed and began these steps. False when the log holds more than what is
    /// known of it: then nothing is remembered, and there may be something to decide.
    pub(super) fn remember(
        &self,
        id: RunId,
        revision: u64,
        last_seq: u64,
        begins: &[String],
        mut run: Remembered,
    ) -> bool {
        let own = u64::try_from(begins.len()).unwrap_or(u64::MAX);
        if run.last_seq.saturating_add(own) != last_seq {
            return false;
        }
        for key in begins {
            match self.workflow.apply(Some(run.state), &Event::StepScheduled { key: key.clone() }) {
                Ok(state) => run.state = state,
                // The driver reads it again, and complains.
                Err(_) => return false,
            }
        }
        (run.revision, run.last_seq) = (revision, last_seq);
        self.memory().put(id, run);
        true
    }
}

/// Whether a NUL character is in it: the store replaces those, so that what is folded later is something else.
fn holds_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || holds_nul(value)),
    }
}
