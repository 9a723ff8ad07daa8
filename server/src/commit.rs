//! Commits how a try ended: the one road for workers' reports and for the agents of this server.

use nightshift_engine::retry::{AfterFailure, after_failure};
use nightshift_engine::store::{Reported, StepRecord, StoreError, TryEnd};
use nightshift_protocol::api::TryOutcome;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::{StepFailure, StepKind, StepOutput};
use nightshift_protocol::time::TimestampMs;

use crate::app::App;

/// Longest code of a failure, in characters.
const MAX_FAILURE_CODE_CHARS: usize = 64;
/// Longest message of a failure, in characters: it is stored in every list.
const MAX_FAILURE_MESSAGE_CHARS: usize = 4_000;
/// Longest time that a failure may ask to wait, in milliseconds.
const MAX_RETRY_AFTER_MS: u64 = 3_600_000;

/// Why a result was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// The output is not one that this kind of step gives.
    #[error("a step of the kind `{kind}` does not give this output")]
    Mismatch {
        /// The kind of the step, as stored.
        kind: String,
    },
    /// The output cannot be written as JSON.
    #[error("the output cannot be stored: {0}")]
    Unwritable(String),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether a step of this kind may give this output.
pub(crate) fn fits(kind: StepKind, output: &StepOutput) -> bool {
    matches!(
        (kind, output),
        (StepKind::PrepareTask, StepOutput::TaskPrepared { .. } | StepOutput::TaskRejected { .. })
            | (StepKind::Plan | StepKind::Replan, StepOutput::Planned { .. })
            | (StepKind::WriteCode, StepOutput::CodeWritten { .. } | StepOutput::NoCode { .. })
            | (StepKind::Build, StepOutput::Built { .. })
            | (StepKind::Check, StepOutput::Checked { .. })
            | (StepKind::Measure, StepOutput::Measured { .. } | StepOutput::MeasureFailed { .. })
            | (StepKind::Profile, StepOutput::Profiled { .. })
            | (StepKind::Diagnose, StepOutput::Diagnosed { .. })
            | (StepKind::Judge, StepOutput::Judged { .. })
    )
}

impl App {
    /// Commits the end of a try under its fence, and wakes whoever waits for it.
    pub(crate) async fn commit(
        &self,
        step: &StepRecord,
        epoch: u64,
        outcome: TryOutcome,
    ) -> Result<Reported, CommitError> {
        let at = self.clock.now();
        let end = match outcome {
            TryOutcome::Completed { output } => {
                let kind = StepKind::parse(&step.kind);
                if !kind.is_some_and(|kind| fits(kind, &output)) {
                    return Err(CommitError::Mismatch { kind: step.kind.clone() });
                }
                let output =
                    serde_json::to_value(&output).map_err(|error| CommitError::Unwritable(error.to_string()))?;
                TryEnd::Completed { output }
            }
            TryOutcome::Failed { failure } => self.after(step, &bounded(failure), at),
            // Only a cancelled run's steps are cancelled (and a second copy of such a report may come when the run is
            // over); a worker that stops for reasons of its own gives the step back, and that counts as a try.
            TryOutcome::Cancelled if self.is_cancelled(&step.run).await? => TryEnd::Cancelled,
            TryOutcome::Cancelled => {
                let stopped =
                    StepFailure::retriable("worker.stopped", "the worker stopped the step without being asked");
                self.after(step, &stopped, at)
            }
        };
        let waits = matches!(end, TryEnd::Retry { .. });
        let result = self.store.report(&step.id, epoch, end, at).await;
        self.trouble.note(&result);
        let reported = result?;
        if reported == Reported::Committed {
            self.wake.run_changed(&step.run);
            if waits {
                self.wake.timer_set();
            }
        }
        Ok(reported)
    }

    async fn is_cancelled(&self, run: &RunId) -> Result<bool, StoreError> {
        let status = self.store.load_run(run).await?.status;
        Ok(matches!(status, RunStatus::Cancelling | RunStatus::Cancelled))
    }

    fn after(&self, step: &StepRecord, failure: &StepFailure, at: TimestampMs) -> TryEnd {
        match after_failure(&step.retry, step.tries, failure, self.random.unit()) {
            AfterFailure::Retry { delay_ms } => {
                TryEnd::Retry { failure: failure.clone(), at: at.plus_ms(delay_ms.min(MAX_RETRY_AFTER_MS)) }
            }
            AfterFailure::GiveUp { failure } => TryEnd::Failed { failure },
        }
    }
}

/// A worker's failure goes into every list: it is cut to size.
fn bounded(mut failure: StepFailure) -> StepFailure {
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
            (StepOutput::Diagnosed { diagnosis: None, unavailable: None, calls: Vec::new() }, vec![StepKind::Diagnose]),
        ];
        for (output, kinds) in outputs {
            let fitting: Vec<StepKind> = StepKind::ALL.into_iter().filter(|kind| fits(*kind, &output)).collect();
            assert_eq!(fitting, kinds);
        }
    }

    #[test]
    fn an_endless_message_is_cut_at_a_character() {
        let failure = bounded(StepFailure::retriable("x", "é".repeat(MAX_FAILURE_MESSAGE_CHARS * 2)));
        assert_eq!(failure.message.chars().count(), MAX_FAILURE_MESSAGE_CHARS + 1);
        assert!(failure.message.ends_with('…'));
    }
}
