//! Records metrics and spans of a commit: begun and ended tries with their durations.

use std::time::Duration;

use nightshift_engine::store::{Advanced, Changed, ModelCallRecord, Reported};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::trace::Span;

use super::metrics::Outcome;
use super::observed_change::ObservedChange;
use super::observer::Observer;
use super::try_span::{model_span, run_span, try_span, wait_span};

impl Observer {
    pub(super) async fn note(&self, asked: ObservedChange, changed: &Changed, took: Duration) {
        match (asked, changed) {
            (ObservedChange::Report { step, epoch, outcome, error, at }, Changed::Reported(reported)) => {
                self.metrics.reported(*reported);
                if *reported == Reported::Committed {
                    self.try_ended(&step, epoch, outcome, error, at);
                }
            }
            (ObservedChange::Claim, Changed::Claimed(steps)) => {
                self.metrics.claimed(took, steps.len());
                for step in steps {
                    self.held.keep(step);
                    self.metrics.began(step);
                }
            }
            (ObservedChange::Advance { run, ends_at: Some(at) }, Changed::Advanced(Advanced::Committed { .. })) => {
                self.run_ended(&run, at).await;
            }
            _ => {}
        }
    }

    /// Records that a lease expired, and its try with it.
    pub(super) fn lease_ran_out(&self, step: &StepId, epoch: u64, at: TimestampMs) {
        self.try_ended(step, epoch, Outcome::Lost, Some("lease lost".to_owned()), at);
    }

    /// Records the end of a try. A second copy of a report is committed too, but its try has ended already and is not
    /// counted again.
    fn try_ended(&self, step: &StepId, epoch: u64, outcome: Outcome, error: Option<String>, at: TimestampMs) {
        let Some(held) = self.held.end(step, epoch) else { return };
        self.metrics.ended(&held, outcome, at);
        if let Some(spans) = &self.spans {
            spans.take(wait_span(&held));
            spans.take(try_span(&held, outcome, error, at));
        }
    }

    pub(super) fn model_called(&self, call: &ModelCallRecord) {
        // This release has just written the summary.
        let Ok(summary) = serde_json::from_value::<ModelCallSummary>(call.summary.clone()) else { return };
        self.metrics.model_called(&summary);
        self.take_span(|| model_span(call, &summary, self.held.find(&call.run, &call.step_key).as_ref()));
    }

    /// Creates the span of the whole run, which is the parent of its other spans.
    async fn run_ended(&self, run: &RunId, at: TimestampMs) {
        let Some(spans) = &self.spans else { return };
        match self.inner.runs.load_run(run).await {
            Ok(record) => spans.take(run_span(&record, at)),
            Err(error) => tracing::debug!(run.id = %run, error = %error, "the span of a run was not made"),
        }
    }

    fn take_span(&self, span: impl FnOnce() -> Span) {
        if let Some(spans) = &self.spans {
            spans.take(span());
        }
    }
}
