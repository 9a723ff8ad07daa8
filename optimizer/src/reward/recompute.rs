//! Scoring history anew: today's rules over yesterday's evidence, the judge's opinion as it was given.

use nightshift_protocol::api::RunView;
use nightshift_protocol::attempt::{Attempt, Stage};
use nightshift_protocol::rubric::{JudgeOpinion, Rubric, Skill};
use nightshift_protocol::score::{AttemptScore, RewardFormula};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::time::TimestampMs;

use super::formula;
use crate::rubric::{self, Before, RULES_VERSION, skill_of};

/// Why an attempt has no opinion of a judge.
const NEVER_JUDGED: &str = "the attempt was never shown to a judge";

/// Scores of every finished attempt of a run, under each formula. An attempt whose plan is not known is left out: its
/// evidence cannot be scored.
#[must_use]
pub fn rescore(spec: &TaskSpec, view: &RunView, formulas: &[RewardFormula], at: TimestampMs) -> Vec<AttemptScore> {
    // An attempt has its reward when its last step is over. Its outcome is known earlier.
    let finished = view.attempts.iter().filter(|attempt| attempt.reward.is_some());
    let scored =
        finished.filter_map(|attempt| Some((attempt, rubric_of(spec, view, attempt, skill_of(attempt.stage))?)));
    scored
        .flat_map(|(attempt, rubric)| formulas.iter().map(move |formula| score(*formula, attempt, &rubric, at)))
        .collect()
}

/// Score of a finished attempt under a formula, also of one that is a part of an attempt of the run; none where its plan is
/// not known.
pub(crate) fn score_of(
    spec: &TaskSpec,
    view: &RunView,
    attempt: &Attempt,
    formula: RewardFormula,
) -> Option<AttemptScore> {
    Some(score(formula, attempt, &rubric_of(spec, view, attempt, skill_of(attempt.stage))?, TimestampMs(0)))
}

fn score(formula: RewardFormula, attempt: &Attempt, rubric: &Rubric, at: TimestampMs) -> AttemptScore {
    AttemptScore {
        attempt: attempt.number,
        rules_version: RULES_VERSION,
        scored: formula::score(formula, &formula::inputs(attempt, rubric.skill, Some(rubric))),
        rubric: rubric.clone(),
        at,
    }
}

/// Returns the rubric of an attempt for a skill: today's rules, and the judge's opinion as it was given. None where its plan
/// is not known.
#[must_use]
pub fn rubric_of(spec: &TaskSpec, view: &RunView, attempt: &Attempt, skill: Skill) -> Option<Rubric> {
    let plan = view.plans.iter().find(|plan| plan.version == attempt.plan_version)?;
    let parent = attempt.parent.and_then(|number| view.attempts.iter().find(|other| other.number == number));
    let modification = modification(attempt, parent);
    let before = Before { modification: modification.as_deref(), parent_speedup: parent.and_then(Attempt::speedup) };
    let rules = rubric::rules(spec, plan, attempt, skill, before);
    let judge = attempt.rubric.as_ref().map_or_else(
        || JudgeOpinion::JudgeUnavailable { reason: NEVER_JUDGED.to_owned() },
        |rubric| rubric.judge.clone(),
    );
    let (rule_reasons, rule_major_hacking) = (rules.reasons, rules.major_hacking);
    Some(Rubric { skill, rules: rules.scores, rule_reasons, rule_major_hacking, judge })
}

/// What the author was asked for; attempts that were stored before it was kept say it through their parent's diagnosis.
fn modification(attempt: &Attempt, parent: Option<&Attempt>) -> Option<String> {
    if let Some(modification) = &attempt.modification {
        return Some(modification.text.clone());
    }
    let parent = parent?;
    let same_request = (attempt.plan_version, attempt.subtask) == (parent.plan_version, parent.subtask);
    let diagnosis = parent.diagnosis.as_ref()?;
    (attempt.stage == Stage::Optimize && same_request).then(|| diagnosis.modification.clone())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;
    use crate::{strategy, task_file};

    #[test]
    fn an_attempt_without_a_reward_is_not_finished() {
        let text = include_str!("../../tests/corpus/history/repaired_to_the_target.json");
        let recorded: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut view = strategy::view(&recorded["state"]).unwrap();
        let toml = include_str!("../../tests/fixtures/scale_and_shift.toml");
        let spec = task_file::bundle(toml, "task.toml", "int reference;".to_owned()).unwrap().spec;
        let scored = |view: &RunView| {
            let scores = rescore(&spec, view, &[RewardFormula::Published1], TimestampMs(1));
            scores.iter().map(|score| score.attempt).collect::<Vec<_>>()
        };
        assert_eq!(scored(&view), [1, 2, 3]);
        // Measured and faster; confirmation, profile and judge are open.
        view.attempts[2].reward = None;
        assert!(view.attempts[2].outcome.is_correct());
        assert_eq!(scored(&view), [1, 2]);
    }
}
