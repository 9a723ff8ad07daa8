//! Scoring history anew: today's rules over yesterday's evidence, the judge's opinion as it was given.

use nightshift_protocol::api::RunView;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Stage};
use nightshift_protocol::rubric::{JudgeOpinion, Rubric};
use nightshift_protocol::score::{AttemptScore, RewardFormula};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::time::TimestampMs;

use super::formula;
use crate::rubric::{self, Before, RULES_VERSION};

/// Why an attempt has no opinion of a judge.
const NEVER_JUDGED: &str = "the attempt was never shown to a judge";

/// Scores of every finished attempt of a run, under each formula. An attempt whose plan is not known is left out: its
/// evidence cannot be scored.
#[must_use]
pub fn rescore(spec: &TaskSpec, view: &RunView, formulas: &[RewardFormula], at: TimestampMs) -> Vec<AttemptScore> {
    let finished = view.attempts.iter().filter(|attempt| attempt.outcome != AttemptOutcome::Pending);
    let scored = finished.filter_map(|attempt| Some((attempt, rubric_of(spec, view, attempt)?)));
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
    Some(score(formula, attempt, &rubric_of(spec, view, attempt)?, TimestampMs(0)))
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

fn rubric_of(spec: &TaskSpec, view: &RunView, attempt: &Attempt) -> Option<Rubric> {
    let plan = view.plans.iter().find(|plan| plan.version == attempt.plan_version)?;
    let skill = rubric::skill_of(attempt.stage);
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
