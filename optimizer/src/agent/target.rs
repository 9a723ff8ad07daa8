//! The speedup at which the run is done, as prompts give it.

use nightshift_protocol::gpu_text::significant;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::target_baseline::TargetBaseline;
use nightshift_protocol::task::TaskGoal;
use serde::Serialize;

/// The target of a run.
#[derive(Serialize)]
pub(super) struct RunTarget {
    /// Speedup over `over`.
    speedup: String,
    /// The baseline of the speedup.
    over: String,
    /// The same over the reference, where `over` is another baseline.
    over_reference: Option<String>,
    /// The same as a number.
    #[serde(skip)]
    pub(super) value_over_reference: f64,
}

impl RunTarget {
    pub(super) fn of(goal: &TaskGoal, prepared: &PreparedTask) -> Option<Self> {
        let target = goal.target_speedup.filter(|target| target.is_finite())?;
        let fastest = prepared.target_baseline(goal.target_baseline.unwrap_or(TargetBaseline::Reference));
        let value_over_reference = fastest.map_or(target, |fastest| target * fastest.speedup.estimate);
        Some(Self {
            speedup: significant(target),
            over: fastest.map_or_else(|| "the reference".to_owned(), |fastest| fastest.kind.label().to_owned()),
            over_reference: fastest.map(|_| significant(value_over_reference)),
            value_over_reference,
        })
    }
}
