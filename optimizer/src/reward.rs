//! The reward: pure, versioned functions of correctness, speedup and rubric ([`formula`] names them all). Its inputs are stored with its result, so
//! that history can be scored anew when the function changes.
//!
//! Version 1, with `s` the speedup and `total` the sum of four scores of 1 to 5:
//!
//! ```text
//! reward = 0                                  when not correct, or a grave cheat was seen
//! base   = min(max(s, 0), 5) + 0.3
//! r      = (clamp(total, 4, 20) - 4) / 16
//! shaped = base * (1 + lambda * (r - 0.5))    lambda: 1.0 from scratch, 0.7 for a refinement
//! reward = clamp(shaped, 0, 3)                0 when not finite
//! ```
//!
//! Without a judge's answer the reward is the base alone, clamped in the same way, and the breakdown says so by an
//! absent total: a missing judge is never a neutral score.

pub mod formula;
pub mod recompute;

use nightshift_protocol::rubric::{JudgeOpinion, RewardBreakdown, Rubric, Skill};

/// Version of the function, stored with every reward.
pub const REWARD_VERSION: u32 = 1;

/// The smallest and the largest sum of four scores.
const TOTALS: (u32, u32) = (4, 20);
/// Speedups above this earn no more.
const SPEEDUP_CAP: f64 = 5.0;
/// What being correct is worth by itself.
const CORRECT_BONUS: f64 = 0.3;
/// The largest reward.
const REWARD_CAP: f64 = 3.0;

/// Weight of the rubric for a skill.
#[must_use]
pub fn lambda(skill: Skill) -> f64 {
    match skill {
        Skill::FromScratch => 1.0,
        Skill::Refinement => 0.7,
    }
}

/// The reward of an attempt.
///
/// `correct` is whether it is right *and* kept the contract. `speedup` is none when it was not timed; that, and a value
/// that is not a number, earns nothing for speed. As in the published function, a missing time leaves the bonus,
/// because the timer is at fault, and a NaN makes the whole reward 0. `rubric` is none for an attempt that was never
/// judged.
#[must_use]
pub fn reward(skill: Skill, correct: bool, speedup: Option<f64>, rubric: Option<&Rubric>) -> RewardBreakdown {
    let (judged_total, judge_flag) = match rubric.map(|rubric| &rubric.judge) {
        Some(JudgeOpinion::Rated { scores, major_hacking, .. }) => (Some(scores.total()), *major_hacking),
        Some(JudgeOpinion::JudgeUnavailable { .. }) | None => (None, false),
    };
    let major_hacking = judge_flag || rubric.is_some_and(|rubric| rubric.rule_major_hacking);
    of_parts(correct, major_hacking, speedup.unwrap_or(0.0), judged_total, lambda(skill))
}

/// The function itself, over exactly what a breakdown stores.
#[must_use]
pub fn of_parts(
    correct: bool,
    major_hacking: bool,
    speedup: f64,
    rubric_total: Option<u32>,
    lambda: f64,
) -> RewardBreakdown {
    // What is not finite has no form in JSON: it is recorded as a speedup of zero with a base of zero.
    let base = if speedup.is_finite() { speedup.clamp(0.0, SPEEDUP_CAP) + CORRECT_BONUS } else { 0.0 };
    let shaped = match rubric_total {
        Some(total) => {
            let r = f64::from(total.clamp(TOTALS.0, TOTALS.1) - TOTALS.0) / f64::from(TOTALS.1 - TOTALS.0);
            base * (1.0 + lambda * (r - 0.5))
        }
        None => base,
    };
    let reward = if correct && !major_hacking && shaped.is_finite() { shaped.clamp(0.0, REWARD_CAP) } else { 0.0 };
    RewardBreakdown {
        version: REWARD_VERSION,
        correct,
        major_hacking,
        speedup: if speedup.is_finite() { speedup } else { 0.0 },
        rubric_total,
        lambda,
        base,
        reward,
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::rubric::RubricScores;

    use super::*;

    fn rated(total: u8, major_hacking: bool) -> Rubric {
        let scores = RubricScores {
            anti_hacking: total / 4 + u8::from(total % 4 >= 1),
            cuda_engineering: total / 4 + u8::from(total % 4 >= 2),
            operator_coverage: total / 4 + u8::from(total % 4 >= 3),
            skill_compliance: total / 4,
        };
        assert_eq!(scores.total(), u32::from(total));
        Rubric {
            skill: Skill::FromScratch,
            rules: scores,
            rule_reasons: Vec::new(),
            rule_major_hacking: false,
            judge: JudgeOpinion::Rated { scores, major_hacking, reasons: Vec::new() },
        }
    }

    #[test]
    fn the_published_table_holds() {
        let rows = [
            (1.5, 16, 1.0, 2.25),
            (1.5, 16, 0.7, 2.115),
            (1.0, 12, 1.0, 1.3),
            (1.0, 12, 0.7, 1.3),
            (0.2, 12, 1.0, 0.5),
            (3.0, 20, 1.0, 3.0),
            (6.0, 4, 1.0, 2.65),
            (6.0, 4, 0.7, 3.0),
            (0.0, 12, 1.0, 0.3),
            (f64::NAN, 12, 1.0, 0.0),
        ];
        for (speedup, total, lambda, expected) in rows {
            let got = of_parts(true, false, speedup, Some(total), lambda).reward;
            assert!((got - expected).abs() < 1e-12, "s {speedup}, total {total}, lambda {lambda}: {got}");
        }
    }

    #[test]
    fn the_skill_chooses_the_weight_of_the_rubric() {
        let rubric = rated(16, false);
        assert!((reward(Skill::FromScratch, true, Some(1.5), Some(&rubric)).reward - 2.25).abs() < 1e-12);
        assert!((reward(Skill::Refinement, true, Some(1.5), Some(&rubric)).reward - 2.115).abs() < 1e-12);
    }

    #[test]
    fn a_missing_judge_leaves_the_base_and_says_so() {
        let mut rubric = rated(20, false);
        rubric.judge = JudgeOpinion::JudgeUnavailable { reason: "it timed out".to_owned() };
        let breakdown = reward(Skill::FromScratch, true, Some(1.5), Some(&rubric));
        assert_eq!(breakdown.rubric_total, None);
        assert!((breakdown.reward - 1.8).abs() < 1e-12);
    }

    #[test]
    fn a_wrong_or_cheating_attempt_earns_nothing() {
        assert!(reward(Skill::FromScratch, false, Some(4.0), Some(&rated(20, false))).reward.abs() < f64::EPSILON);
        assert!(reward(Skill::FromScratch, true, Some(4.0), Some(&rated(20, true))).reward.abs() < f64::EPSILON);
        let mut seen_by_rules = rated(20, false);
        seen_by_rules.rule_major_hacking = true;
        let breakdown = reward(Skill::FromScratch, true, Some(4.0), Some(&seen_by_rules));
        assert!(breakdown.major_hacking && breakdown.reward.abs() < f64::EPSILON);
    }

    #[test]
    fn every_breakdown_survives_json() {
        for speedup in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -3.0, 1e300, 0.1 + 0.2] {
            let breakdown = of_parts(true, false, speedup, Some(17), 0.7);
            assert!((0.0..=3.0).contains(&breakdown.reward));
            let text = serde_json::to_string(&breakdown).unwrap_or_default();
            assert_eq!(serde_json::from_str::<RewardBreakdown>(&text).ok(), Some(breakdown), "{text}");
        }
    }

    #[test]
    fn a_stored_breakdown_can_be_recomputed() {
        let stored = of_parts(true, false, 1.37, Some(15), 0.7);
        let again = of_parts(stored.correct, stored.major_hacking, stored.speedup, stored.rubric_total, stored.lambda);
        assert_eq!(again, stored);
    }
}
