//! The limits and targets of a run: campaign over task over the defaults here.

use nightshift_protocol::target_baseline::TargetBaseline;
use nightshift_protocol::task::TaskGoal;

/// Attempts of a run, unless task or campaign say otherwise.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 6;
/// New plans of a run, unless task or campaign say otherwise.
pub const DEFAULT_MAX_REPLANS: u32 = 2;
/// Failures of the same kind in a row that give up a plan.
pub const DEFAULT_REPLAN_AFTER_FAILED: u32 = 2;
/// Correct attempts without a gain that give up a plan.
pub const DEFAULT_REPLAN_AFTER_STAGNANT: u32 = 2;
/// A speedup counts as a gain when it exceeds the best by this share.
pub const DEFAULT_MIN_GAIN: f64 = 0.05;
/// Fix turns of an attempt, unless task or campaign say otherwise, and unless its strategy compares first answers.
pub const DEFAULT_MAX_FIX_TURNS: u32 = 2;
/// Candidates that `beam` and `group` write at the same time, unless task or campaign say otherwise.
pub const DEFAULT_CANDIDATES_PER_ROUND: u32 = 4;
/// Most candidates of a round.
pub const MAX_CANDIDATES_PER_ROUND: u32 = 16;
/// Most fix turns of an attempt: each adds a version of the program to the state of its run.
pub const MAX_FIX_TURNS: u32 = 10;
/// Turns of an agent session, unless task or campaign say otherwise.
pub const DEFAULT_MAX_TURNS: u32 = 40;
/// Most turns of an agent session: the state of its run holds what each of them tried out.
pub const MAX_TURNS: u32 = 200;
/// Most attempts that a run may have: its state holds all of them.
pub const MAX_ATTEMPTS: u32 = 200;

/// The goal of a run, with every value filled in but the target, which may be absent: then only the other rules end
/// the run. Stored in the run's first event, so that a new release with other defaults leaves running runs alone.
#[must_use]
pub fn effective_goal(strategy: &str, task: &TaskGoal, campaign: &TaskGoal) -> TaskGoal {
    let strategy = super::find(strategy);
    let own_default = strategy.map(super::Strategy::default_max_attempts);
    // Where first answers are compared there are none, and an agent with tools fixes its programs itself.
    let without_fixes = strategy.is_some_and(|strategy| strategy.same_prompt() || strategy.has_session());
    let fix_turns = if without_fixes { 0 } else { DEFAULT_MAX_FIX_TURNS };
    let max_turns = campaign.max_turns.or(task.max_turns);
    let has_turns = max_turns.is_some() || strategy.is_some_and(super::Strategy::has_session);
    let limits = Limits::of(&TaskGoal {
        target_speedup: campaign.target_speedup.or(task.target_speedup),
        target_baseline: Some(campaign.target_baseline.or(task.target_baseline).unwrap_or_default()),
        max_attempts: campaign.max_attempts.or(task.max_attempts).or(own_default),
        max_replans: campaign.max_replans.or(task.max_replans),
        replan_after_failed: campaign.replan_after_failed.or(task.replan_after_failed),
        replan_after_stagnant: campaign.replan_after_stagnant.or(task.replan_after_stagnant),
        min_gain: campaign.min_gain.or(task.min_gain),
        candidates_per_round: campaign.candidates_per_round.or(task.candidates_per_round),
        max_fix_turns: campaign.max_fix_turns.or(task.max_fix_turns).or(Some(fix_turns)),
        max_turns,
        max_variants: campaign.max_variants.or(task.max_variants),
    });
    TaskGoal {
        target_speedup: limits.target_speedup,
        target_baseline: Some(limits.target_baseline),
        max_attempts: Some(limits.max_attempts),
        max_replans: Some(limits.max_replans),
        replan_after_failed: Some(limits.replan_after_failed),
        replan_after_stagnant: Some(limits.replan_after_stagnant),
        min_gain: Some(limits.min_gain),
        candidates_per_round: campaign.candidates_per_round.or(task.candidates_per_round),
        max_fix_turns: Some(limits.max_fix_turns),
        max_turns: has_turns.then_some(limits.max_turns),
        max_variants: campaign.max_variants.or(task.max_variants),
    }
}

/// The goal in a form that rules can use: complete and within bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    pub(super) target_speedup: Option<f64>,
    pub(super) target_baseline: TargetBaseline,
    pub(super) max_attempts: u32,
    pub(super) max_replans: u32,
    pub(super) replan_after_failed: u32,
    pub(super) replan_after_stagnant: u32,
    pub(super) min_gain: f64,
    pub(super) candidates_per_round: u32,
    pub(super) max_fix_turns: u32,
    pub(super) max_turns: u32,
}

impl Limits {
    pub(super) fn of(goal: &TaskGoal) -> Self {
        Self {
            target_speedup: goal.target_speedup.filter(|target| target.is_finite()),
            // Runs from before there was a choice go on as they began.
            target_baseline: goal.target_baseline.unwrap_or(TargetBaseline::Reference),
            max_attempts: goal.max_attempts.unwrap_or(DEFAULT_MAX_ATTEMPTS).clamp(1, MAX_ATTEMPTS),
            // Every plan is followed by an attempt, so more replans than attempts could never happen.
            max_replans: goal.max_replans.unwrap_or(DEFAULT_MAX_REPLANS).min(MAX_ATTEMPTS),
            replan_after_failed: goal.replan_after_failed.unwrap_or(DEFAULT_REPLAN_AFTER_FAILED).max(1),
            replan_after_stagnant: goal.replan_after_stagnant.unwrap_or(DEFAULT_REPLAN_AFTER_STAGNANT).max(1),
            min_gain: goal.min_gain.filter(|gain| gain.is_finite() && *gain >= 0.0).unwrap_or(DEFAULT_MIN_GAIN),
            candidates_per_round: goal
                .candidates_per_round
                .unwrap_or(DEFAULT_CANDIDATES_PER_ROUND)
                .clamp(1, MAX_CANDIDATES_PER_ROUND),
            // Runs from before there were fix turns go on as they began.
            max_fix_turns: goal.max_fix_turns.unwrap_or(0).min(MAX_FIX_TURNS),
            max_turns: goal.max_turns.unwrap_or(DEFAULT_MAX_TURNS).clamp(1, MAX_TURNS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_campaign_overrides_the_task_and_the_task_the_defaults() {
        let task = TaskGoal { target_speedup: Some(2.0), max_attempts: Some(4), ..TaskGoal::default() };
        let campaign = TaskGoal { max_attempts: Some(9), min_gain: Some(0.1), ..TaskGoal::default() };
        let goal = effective_goal("stitch", &task, &campaign);
        assert_eq!(goal.target_speedup, Some(2.0));
        assert_eq!(goal.max_attempts, Some(9));
        assert_eq!(goal.max_replans, Some(DEFAULT_MAX_REPLANS));
        assert_eq!(goal.min_gain, Some(0.1));
        let of = |strategy| effective_goal(strategy, &TaskGoal::default(), &TaskGoal::default()).max_attempts;
        assert_eq!((of("stitch"), of("forge"), of("beam")), (Some(DEFAULT_MAX_ATTEMPTS), Some(10), Some(16)));
    }

    #[test]
    fn fix_turns_are_off_where_first_answers_are_compared_and_in_runs_that_name_none() {
        let of = |strategy, campaign: &TaskGoal| effective_goal(strategy, &TaskGoal::default(), campaign).max_fix_turns;
        let unsaid = TaskGoal::default();
        assert_eq!(
            ["stitch", "forge", "beam", "group", "agent"].map(|name| of(name, &unsaid)),
            [2, 2, 2, 0, 0].map(Some)
        );
        let told = |turns| TaskGoal { max_fix_turns: Some(turns), ..TaskGoal::default() };
        assert_eq!((of("group", &told(1)), of("stitch", &told(0))), (Some(1), Some(0)));
        assert_eq!(of("stitch", &told(99)), Some(MAX_FIX_TURNS));
        assert_eq!(Limits::of(&unsaid).max_fix_turns, 0);
    }

    #[test]
    fn turns_are_for_strategies_that_have_a_session() {
        let of = |strategy, campaign: &TaskGoal| effective_goal(strategy, &TaskGoal::default(), campaign).max_turns;
        let told = |turns| TaskGoal { max_turns: Some(turns), ..TaskGoal::default() };
        assert_eq!((of("stitch", &told(7)), of("stitch", &TaskGoal::default())), (Some(7), None));
        assert_eq!(of("agent", &TaskGoal::default()), Some(DEFAULT_MAX_TURNS));
        assert_eq!((of("agent", &told(0)), of("agent", &told(9_999))), (Some(1), Some(MAX_TURNS)));
    }

    #[test]
    fn senseless_values_are_brought_within_bounds() {
        let limits = Limits::of(&TaskGoal {
            target_speedup: Some(f64::NAN),
            max_attempts: Some(0),
            replan_after_failed: Some(0),
            min_gain: Some(-1.0),
            ..TaskGoal::default()
        });
        assert_eq!(limits.target_speedup, None);
        assert_eq!((limits.max_attempts, limits.replan_after_failed), (1, 1));
        assert!((limits.min_gain - DEFAULT_MIN_GAIN).abs() < f64::EPSILON);
    }
}
