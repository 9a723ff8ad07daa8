//! What an attempt taught: which change brought how much, once both programs were timed.

use nightshift_engine::store::{BoundFrom, LessonRecord};
use nightshift_protocol::attempt::{Attempt, Bound, Stage};
use nightshift_protocol::id::RunId;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::plan::{PlanVersion, Subtask};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::time::TimestampMs;

use super::select;
use crate::rubric;

/// Bytes of a change that are kept.
const MAX_KEPT_BYTES: usize = 2_000;
/// A gain in millionths.
const MILLIONTHS: f64 = 1e6;
/// The largest gain that is kept; what is above it is a fault of a clock.
const MAX_GAIN: f64 = 1e6;

/// What is learned from.
#[derive(Debug, Clone, Copy)]
pub struct Lesson<'a> {
    /// The task.
    pub spec: &'a TaskSpec,
    /// The plan in force.
    pub plan: &'a PlanVersion,
    /// The attempt.
    pub attempt: &'a Attempt,
    /// The one change that its author was asked for.
    pub modification: Option<&'a str>,
    /// The speedup of the program before, when that was timed.
    pub parent_speedup: Option<Interval>,
    /// What limited the program before, when that was diagnosed.
    pub parent_bound: Option<Bound>,
}

impl Lesson<'_> {
    /// As it is kept. None for an attempt that was not timed, and for a change that cannot be compared with anything.
    #[must_use]
    pub fn record(&self, run: &RunId, at: TimestampMs) -> Option<LessonRecord> {
        let attempt = self.attempt;
        let speedup = attempt.speedup().filter(|_| attempt.outcome.is_correct())?;
        let number = usize::try_from(attempt.subtask).ok()?.checked_sub(1)?;
        let subtask = self.plan.plan.subtasks.get(number)?;
        // A repair carries on what the attempt before it was asked for.
        let carried = attempt.modification.as_ref().map(|modification| modification.text.as_str());
        let (change, gain, certain) = match (self.modification.or(carried), self.parent_speedup) {
            (Some(modification), before) => {
                let measured = attempt.gain.map(|gain| gain.measured);
                let gain = measured.or_else(|| Some(speedup.estimate / before?.estimate))?;
                (modification.to_owned(), gain, before.is_some_and(|before| apart(speedup, before)))
            }
            // The first program that is right, maybe after repairs.
            (None, None) if attempt.stage != Stage::Optimize => {
                let sure = speedup.low > 1.0 || speedup.high < 1.0;
                (of_a_first_program(subtask), speedup.estimate, sure)
            }
            (None, _) => return None,
        };
        if !(gain.is_finite() && gain > 0.0 && gain <= MAX_GAIN) {
            return None;
        }
        let (bound, bound_from) = self.bound(subtask);
        Some(LessonRecord {
            run: run.clone(),
            attempt: attempt.number,
            task: self.spec.name.clone(),
            operator_class: rubric::heaviest_class(self.spec, &subtask.scope)?,
            bound,
            bound_from,
            device: select::device(self.spec, &attempt.published()?.machine),
            change: clipped(change),
            gain_ppm: ppm(gain),
            certain,
            at,
        })
    }

    /// What limited the program that was changed, and who said so: the evidence before what was only expected.
    fn bound(&self, subtask: &Subtask) -> (String, BoundFrom) {
        match (self.parent_bound, subtask.expected_bottleneck.as_str()) {
            (Some(diagnosed), _) => (diagnosed.as_str().to_owned(), BoundFrom::Diagnosis),
            (None, "") => ("unknown".to_owned(), BoundFrom::Plan),
            (None, expected) => (expected.to_owned(), BoundFrom::Plan),
        }
    }
}

fn of_a_first_program(subtask: &Subtask) -> String {
    // The other methods were not tried.
    let how = subtask.methods.first().unwrap_or(&subtask.title);
    format!("first program, against the reference: {how}")
}

fn apart(a: Interval, b: Interval) -> bool {
    a.low > b.high || a.high < b.low
}

fn clipped(mut text: String) -> String {
    let end = (0..=MAX_KEPT_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 1e12, as the caller checked"
)]
fn ppm(gain: f64) -> u64 {
    (gain * MILLIONTHS).round() as u64
}
