//! The speedup at which the run is done, and the number of its attempts, as prompts give them.

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

/// The number of attempts that a run may make.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct AttemptsOfRun {
    most: u32,
    /// The attempt that the prompt is about; none where it is about several.
    number: Option<u32>,
    /// The number of attempts that are left after it.
    left: Option<u32>,
}

impl AttemptsOfRun {
    pub(super) fn of(goal: &TaskGoal, number: Option<u32>) -> Option<Self> {
        let most = goal.max_attempts?;
        Some(Self { most, number, left: number.map(|number| most.saturating_sub(number)) })
    }

    /// The same for the attempt that a step belongs to, by the step's key.
    pub(super) fn of_step(goal: &TaskGoal, step_key: &str) -> Option<Self> {
        let number = step_key.split('/').find_map(|part| part.strip_prefix("attempt")?.parse().ok());
        Self::of(goal, number)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_how_many_attempts_are_left() {
        let goal = TaskGoal { max_attempts: Some(4), ..TaskGoal::default() };
        let of = |key: &str| AttemptsOfRun::of_step(&goal, key);
        assert_eq!(
            of("subtask1/attempt3/fix1/write_code"),
            Some(AttemptsOfRun { most: 4, number: Some(3), left: Some(1) })
        );
        assert_eq!(of("plan1/plan"), Some(AttemptsOfRun { most: 4, number: None, left: None }));
        assert_eq!(AttemptsOfRun::of(&TaskGoal::default(), Some(3)), None);
    }
}
