//! Commits how a try ended, for reports of workers and of this server's agents.

use nightshift_engine::driver::{PrecomputedDecision, Settled};
use nightshift_engine::retry::{AfterFailure, after_failure};
use nightshift_engine::store::{
    Advanced, Change, Changed, ClaimRequest, Report, Reported, StepRecord, StoreError, TryEnd,
};
use nightshift_optimizer::agent::{BUDGET_WAIT, REQUEST_OPEN};
use nightshift_protocol::api::TryOutcome;
use nightshift_protocol::budget::{Amount, Resource};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::{StepFailure, StepKind, StepOutput};
use nightshift_protocol::time::TimestampMs;

use crate::driving::Driving;

/// Maximum length of a failure's code, in characters.
const MAX_FAILURE_CODE_CHARS: usize = 64;
/// Maximum length of a failure's message, in characters. Every list contains it.
const MAX_FAILURE_MESSAGE_CHARS: usize = 4_000;
/// Maximum delay that a failure may request, in milliseconds.
const MAX_RETRY_AFTER_MS: u64 = 3_600_000;

/// Delay before a step asks again for a budget that other steps have reserved, in milliseconds, unless it requests
/// another delay.
const BUDGET_WAIT_MS: u64 = 15_000;
/// Maximum number of times that this delay doubles while the step waits.
const BUDGET_WAIT_DOUBLINGS: u64 = 2;

/// The source of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reporter {
    /// The agents of this server.
    Agents,
    /// A worker, whose data is not trusted.
    Worker {
        /// Whether it is draining and returns steps that it cannot finish.
        draining: bool,
    },
}

/// Outcome of a report.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reported: Reported,
    /// Steps that were claimed with it.
    pub(crate) steps: Vec<StepRecord>,
}

/// Why a result was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// The output does not match the kind of step.
    #[error("a step of the kind `{kind}` does not give this output")]
    Mismatch {
        /// The stored kind of the step.
        kind: String,
    },
    /// The output cannot be written as JSON.
    #[error("the output cannot be stored: {0}")]
    Unwritable(String),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns whether a step of this kind may have this output.
pub(crate) fn fits(kind: StepKind, output: &StepOutput) -> bool {
    matches!(
        (kind, output),
        (StepKind::PrepareTask, StepOutput::TaskPrepared { .. } | StepOutput::TaskRejected { .. })
            | (StepKind::Plan | StepKind::Replan, StepOutput::Planned { .. })
            | (
                StepKind::WriteCode,
                StepOutput::CodeWritten { .. } | StepOutput::NoCode { .. } | StepOutput::TurnTaken { .. }
            )
            | (StepKind::Build, StepOutput::Built { .. })
            | (StepKind::Check, StepOutput::Checked { .. })
            | (StepKind::Sanitize, StepOutput::Sanitized { .. })
            | (StepKind::Tune, StepOutput::Tuned { .. })
            | (StepKind::Measure, StepOutput::Measured { .. } | StepOutput::MeasureFailed { .. })
            | (StepKind::Profile, StepOutput::Profiled { .. })
            | (StepKind::Diagnose, StepOutput::Diagnosed { .. })
            | (StepKind::Judge, StepOutput::Judged { .. })
    )
}

impl Driving {
    /// Commits the end of a try under its fence and claims further steps, as one group.
    pub(crate) async fn commit(
        &self,
        step: &StepRecord,
        epoch: u64,
        outcome: TryOutcome,
        reporter: Reporter,
        claim: Option<ClaimRequest>,
    ) -> Result<Done, CommitError> {
        let at = self.shared.clock.now();
        let end = self.end_of(step, outcome, reporter, at).await?;
        let used = used(step, &end, at);
        let asked = matches!(&end, TryEnd::Wait { failure, .. } if failure.code == REQUEST_OPEN);
        let lease = claim.as_ref().map(|claim| (claim.worker.clone(), claim.expires_at));
        let report = Report { step: step.id.clone(), epoch, end, used, at };
        // The step may have been claimed before the decision that scheduled it has returned to the cache. Wait briefly
        // for it.
        self.wake.until_decided(&step.run).await;
        // The following decision is computed from the cached run, and committed with the report.
        let foreseen = self.server_lease.current().and_then(|_| self.driver.precompute_decision(&report));
        let mut changes = vec![Change::Report(report)];
        let ticket = foreseen.map(|PrecomputedDecision { advance, ticket }| {
            changes.push(Change::Advance(advance));
            (self.wake.deciding(ticket.run()), ticket)
        });
        changes.extend(claim.map(Change::Claim));
        let result = self.shared.store.changes.commit(changes).await;
        self.shared.store_health.note(&result);
        let mut done = Done { reported: Reported::LeaseLost, steps: Vec::new() };
        let mut advanced = Advanced::Conflict;
        let failed = result.as_ref().err().cloned();
        for answer in result.unwrap_or_default() {
            match answer {
                Changed::Reported(became) => done.reported = became,
                Changed::Claimed(steps) => done.steps = steps,
                Changed::Advanced(became) => advanced = became,
            }
        }
        if let Some((deciding, ticket)) = ticket {
            let run = ticket.run().clone();
            let settled = self.driver.settle(ticket, done.reported, &advanced);
            if matches!(settled, Settled::Ended | Settled::NotOwner) {
                self.fences.give_up(&run);
            }
            drop(deciding);
            if !matches!(settled, Settled::Decided | Settled::Ended) {
                self.wake.run_changed(&run);
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        self.dispatch.leases.forget(&step.id);
        if asked && done.reported == Reported::Committed {
            self.requests.notify_waiters();
        }
        if let Some((worker, expires_at)) = lease.filter(|_| !done.steps.is_empty()) {
            self.dispatch.leased(&worker, &done.steps, expires_at);
        }
        Ok(done)
    }

    /// Converts the outcome into the end of the try.
    async fn end_of(
        &self,
        step: &StepRecord,
        outcome: TryOutcome,
        reporter: Reporter,
        at: TimestampMs,
    ) -> Result<TryEnd, CommitError> {
        let outcome = match outcome {
            TryOutcome::Failed { failure } => TryOutcome::Failed { failure: failure.after(step.failure.as_ref()) },
            other => other,
        };
        Ok(match (outcome, reporter) {
            (TryOutcome::Completed { output }, _) => {
                let kind = StepKind::parse(&step.kind);
                if !kind.is_some_and(|kind| fits(kind, &output)) {
                    return Err(CommitError::Mismatch { kind: step.kind.clone() });
                }
                let output =
                    serde_json::to_value(&output).map_err(|error| CommitError::Unwritable(error.to_string()))?;
                TryEnd::Completed { output }
            }
            // Waiting for reservations of other steps is not a failed try.
            (TryOutcome::Failed { failure }, Reporter::Agents) if failure.code == BUDGET_WAIT => {
                // Waits do not count as tries, but each has a lease of its own.
                let waits = step.epoch.saturating_sub(u64::from(step.tries)).min(BUDGET_WAIT_DOUBLINGS);
                let first_ms = failure.retry_after_ms.unwrap_or(BUDGET_WAIT_MS);
                let wait_ms = first_ms.saturating_mul(1 << waits).min(MAX_RETRY_AFTER_MS);
                TryEnd::Wait { failure, at: at.plus_ms(wait_ms) }
            }
            // The answer of an outside agent or the deadline wakes the step.
            (TryOutcome::Failed { failure }, Reporter::Agents) if failure.code == REQUEST_OPEN => {
                let wait_ms = failure.retry_after_ms.unwrap_or(MAX_RETRY_AFTER_MS);
                TryEnd::Wait { failure, at: at.plus_ms(wait_ms) }
            }
            (TryOutcome::Failed { failure }, reporter) => self.after(step, &bounded(failure, reporter), at),
            // Only steps of a cancelled run are cancelled; a second copy of such a report may arrive after the run's
            // end. A draining worker returns its steps, and another worker begins them again.
            (TryOutcome::Cancelled, Reporter::Worker { draining: true }) => TryEnd::Cancelled,
            (TryOutcome::Cancelled, _) if self.is_cancelled(&step.run).await? => TryEnd::Cancelled,
            // A worker that its operator stops returns its steps too, without the server's knowledge. The try counts,
            // so that a worker which always stops cannot keep a step forever.
            (TryOutcome::Cancelled, Reporter::Worker { .. }) if step.tries < step.retry.max_tries => TryEnd::Cancelled,
            (TryOutcome::Cancelled, _) => {
                let stopped =
                    StepFailure::retriable("worker.stopped", "the worker stopped the step without being asked");
                self.after(step, &stopped, at)
            }
        })
    }

    async fn is_cancelled(&self, run: &RunId) -> Result<bool, StoreError> {
        let status = self.shared.store.runs.run_status(run).await?;
        Ok(matches!(status, RunStatus::Cancelling | RunStatus::Cancelled))
    }

    fn after(&self, step: &StepRecord, failure: &StepFailure, at: TimestampMs) -> TryEnd {
        match after_failure(&step.retry, step.tries, failure, self.shared.random.unit()) {
            AfterFailure::Retry { delay_ms } => {
                TryEnd::Retry { failure: failure.clone(), at: at.plus_ms(delay_ms.min(MAX_RETRY_AFTER_MS)) }
            }
            AfterFailure::GiveUp { failure } => TryEnd::Failed { failure },
        }
    }
}

/// Returns the used part of a try's reservation. Model calls are settled one by one; the store counts the reservation of
/// a call that is still open as used.
fn used(step: &StepRecord, end: &TryEnd, at: TimestampMs) -> Vec<Amount> {
    let mut used = Vec::new();
    if step.device.is_some()
        && let Some(started_at) = step.started_at
    {
        used.push(Amount { resource: Resource::DeviceMs, amount: at.since_ms(started_at) });
    }
    if matches!(end, TryEnd::Completed { .. }) && step.kind == StepKind::WriteCode.as_str() {
        used.push(Amount { resource: Resource::Attempts, amount: 1 });
    }
    used
}

/// Limits the size of a failure, because every list contains it. Removes model calls from a worker's failure, because
/// workers make none.
fn bounded(mut failure: StepFailure, reporter: Reporter) -> StepFailure {
    if matches!(reporter, Reporter::Worker { .. }) {
        failure.calls.clear();
    }
    cut(&mut failure.code, MAX_FAILURE_CODE_CHARS);
    cut(&mut failure.message, MAX_FAILURE_MESSAGE_CHARS);
    failure
}

fn cut(text: &mut String, max_chars: usize) {
    if let Some((end, _)) = text.char_indices().nth(max_chars) {
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_fits_only_its_own_kind_of_step() {
        let outputs = [
            (
                StepOutput::TaskRejected { code: String::new(), message: String::new(), log: None },
                vec![StepKind::PrepareTask],
            ),
            (
                StepOutput::NoCode { code: String::new(), message: String::new(), calls: Vec::new() },
                vec![StepKind::WriteCode],
            ),
            (
                StepOutput::Diagnosed { diagnosis: None, correction: None, unavailable: None, calls: Vec::new() },
                vec![StepKind::Diagnose],
            ),
        ];
        for (output, kinds) in outputs {
            let fitting: Vec<StepKind> = StepKind::ALL.into_iter().filter(|kind| fits(*kind, &output)).collect();
            assert_eq!(fitting, kinds);
        }
    }

    #[test]
    fn an_endless_message_is_cut_at_a_character() {
        let failure = bounded(
            StepFailure::retriable("x", "é".repeat(MAX_FAILURE_MESSAGE_CHARS * 2)),
            Reporter::Worker { draining: false },
        );
        assert_eq!(failure.message.chars().count(), MAX_FAILURE_MESSAGE_CHARS + 1);
        assert!(failure.message.ends_with('…'));
    }
}
