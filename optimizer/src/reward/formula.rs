//! Reward functions by name and version: pure, total, and never changed once they were used.
//!
//! `published.1` is the function of the parent module. `nightshift.1` differs in what we learned from it:
//!
//! ```text
//! reward = 0                                 when not correct, or a grave cheat was seen
//! s      = the assured speedup               the published one where no interval is known
//! speed  = log2(1 + min(max(s, 0), 31))      twice as fast is always worth about one more; 0 to 5
//! own    = min(share / 0.3, 1)               1 where the share of time in own kernels is unknown
//! r      = (clamp(total, 4, 20) - 4) / 16    total: the mean of judge and rules
//! rubric = 1 + lambda * (r - 0.5)            lambda: 0.5 from scratch, 0.35 for a refinement
//! reward = 0.3 + speed * own * rubric        0 when not finite
//! ```
//!
//! Without a judge's answer the rules alone give `r`, and `rubric` is at most 1: an absent judge may cost, but never pays.
//! Being right is worth 0.3 whatever else holds. What the rubric scales is the speed alone, so that no style makes up for
//! a program that brings nothing.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::rubric::{JudgeOpinion, Rubric, Skill};
use nightshift_protocol::score::{RewardFormula, RewardInputs, RewardTerm, ScoredReward};
use nightshift_protocol::verdict::has_violation;

use super::{CORRECT_BONUS, SPEEDUP_CAP, TOTALS, lambda, of_parts};

/// Speedups above this earn no more under `nightshift.1`.
const SPEEDUP_CAP_OURS: f64 = 31.0;
/// Share of time in own kernels from which a program counts as its author's work.
const OWN_SHARE: f64 = 0.3;

/// The reward under a formula.
#[must_use]
pub fn score(formula: RewardFormula, inputs: &RewardInputs) -> ScoredReward {
    let (terms, reward) = match formula {
        RewardFormula::Published1 => published(inputs),
        RewardFormula::Nightshift1 => ours(inputs),
    };
    let reward = if reward.is_finite() { reward } else { 0.0 };
    let terms = terms.into_iter().map(|(name, value)| RewardTerm { name: name.to_owned(), value: shown(value) });
    ScoredReward { formula, inputs: storable(inputs), terms: terms.collect(), reward }
}

/// What the evidence of an attempt gives a formula to look at.
#[must_use]
pub fn inputs(attempt: &Attempt, skill: Skill, rubric: Option<&Rubric>) -> RewardInputs {
    let (judge_total, judge_flag) = match rubric.map(|rubric| &rubric.judge) {
        Some(JudgeOpinion::Rated { scores, major_hacking, .. }) => (Some(scores.total()), *major_hacking),
        Some(JudgeOpinion::JudgeUnavailable { .. }) | None => (None, false),
    };
    RewardInputs {
        skill,
        correct: attempt.outcome.is_correct() && !has_violation(&attempt.findings),
        major_hacking: judge_flag || rubric.is_some_and(|rubric| rubric.rule_major_hacking),
        speedup: attempt.speedup().map(|speedup| speedup.estimate),
        assured_speedup: attempt.assured_speedup(),
        judge_total,
        rule_total: rubric.map(|rubric| rubric.rules.total()),
        own_kernel_share: attempt.verdict.custom_kernel_time_share,
    }
}

type Terms = Vec<(&'static str, f64)>;

fn published(inputs: &RewardInputs) -> (Terms, f64) {
    let speedup = inputs.speedup.unwrap_or(0.0);
    let lambda = lambda(inputs.skill);
    let made = of_parts(inputs.correct, inputs.major_hacking, speedup, inputs.judge_total, lambda);
    let mut terms = vec![("speed", speedup.clamp(0.0, SPEEDUP_CAP)), ("base", made.base)];
    terms.extend(inputs.judge_total.map(|total| ("rubric", 1.0 + lambda * (ratio(f64::from(total)) - 0.5))));
    (terms, made.reward)
}

fn ours(inputs: &RewardInputs) -> (Terms, f64) {
    let speedup = inputs.assured_speedup.or(inputs.speedup).unwrap_or(0.0);
    let speed = (1.0 + speedup.clamp(0.0, SPEEDUP_CAP_OURS)).log2();
    let own = inputs.own_kernel_share.map_or(1.0, |share| (share / OWN_SHARE).clamp(0.0, 1.0));
    let lambda = match inputs.skill {
        Skill::FromScratch => 0.5,
        Skill::Refinement => 0.35,
    };
    let shaped = |total: f64| 1.0 + lambda * (ratio(total) - 0.5);
    let rubric = match (inputs.judge_total.map(f64::from), inputs.rule_total.map(f64::from)) {
        (Some(judge), Some(rules)) => Some(shaped(f64::midpoint(judge, rules))),
        (Some(judge), None) => Some(shaped(judge)),
        (None, Some(rules)) => Some(shaped(rules).min(1.0)),
        (None, None) => None,
    };
    let mut terms = vec![("correct", CORRECT_BONUS), ("speed", speed), ("own", own)];
    terms.extend(rubric.map(|rubric| ("rubric", rubric)));
    let counts = inputs.correct && !inputs.major_hacking;
    (terms, if counts { CORRECT_BONUS + speed * own * rubric.unwrap_or(1.0) } else { 0.0 })
}

/// Where a sum of four scores lies between the worst and the best, 0 to 1.
fn ratio(total: f64) -> f64 {
    let (low, high) = (f64::from(TOTALS.0), f64::from(TOTALS.1));
    (total.clamp(low, high) - low) / (high - low)
}

/// What is not finite has no form in JSON.
fn shown(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

fn storable(inputs: &RewardInputs) -> RewardInputs {
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    RewardInputs {
        speedup: finite(inputs.speedup),
        assured_speedup: finite(inputs.assured_speedup),
        own_kernel_share: finite(inputs.own_kernel_share),
        ..inputs.clone()
    }
}
