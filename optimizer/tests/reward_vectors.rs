//! The reward functions against numbers that were worked out elsewhere, and against what has to hold for any numbers.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use nightshift_optimizer::reward::formula::score;
use nightshift_protocol::rubric::Skill;
use nightshift_protocol::score::{RewardFormula, RewardInputs, ScoredReward};
use proptest::prelude::*;
use serde::Deserialize;

/// A vector; the file says for each where its number comes from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    formula: RewardFormula,
    source: String,
    inputs: RewardInputs,
    reward: f64,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("corpus/reward/vectors.json")).unwrap()
}

#[test]
fn every_vector_holds() {
    for vector in vectors() {
        let got = score(vector.formula, &vector.inputs).reward;
        let name = vector.formula.as_str();
        assert!((got - vector.reward).abs() < 1e-12, "{name}: {}: {got} instead of {}", vector.name, vector.reward);
    }
}

#[test]
fn every_formula_has_vectors_and_every_vector_a_source() {
    let all = vectors();
    for formula in RewardFormula::ALL {
        assert!(all.iter().filter(|vector| vector.formula == formula).count() >= 15, "{}", formula.as_str());
    }
    assert!(all.iter().all(|vector| vector.source.len() > 20));
}

fn inputs() -> impl Strategy<Value = RewardInputs> {
    let number = || prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), 0.0..100.0_f64];
    let total = || proptest::option::of(0..30_u32);
    let skill = prop_oneof![Just(Skill::FromScratch), Just(Skill::Refinement)];
    let numbers = (proptest::option::of(number()), proptest::option::of(number()), proptest::option::of(number()));
    (skill, any::<bool>(), any::<bool>(), numbers, total(), total()).prop_map(
        |(skill, correct, major_hacking, (speedup, assured_speedup, own_kernel_share), judge_total, rule_total)| {
            RewardInputs {
                skill,
                correct,
                major_hacking,
                speedup,
                assured_speedup,
                judge_total,
                rule_total,
                own_kernel_share,
            }
        },
    )
}

fn formula() -> impl Strategy<Value = RewardFormula> {
    proptest::sample::select(RewardFormula::ALL.to_vec())
}

proptest! {
    #[test]
    fn a_reward_is_finite_bounded_and_survives_json(formula in formula(), inputs in inputs()) {
        let scored = score(formula, &inputs);
        prop_assert!((0.0..=7.0).contains(&scored.reward), "{scored:?}");
        prop_assert!(scored.terms.iter().all(|term| term.value.is_finite()));
        let text = serde_json::to_string(&scored).unwrap();
        prop_assert_eq!(serde_json::from_str::<ScoredReward>(&text).unwrap(), scored);
    }

    #[test]
    fn what_is_wrong_or_cheats_earns_nothing(formula in formula(), inputs in inputs()) {
        let wrong = RewardInputs { correct: false, ..inputs.clone() };
        let cheat = RewardInputs { major_hacking: true, ..inputs };
        prop_assert!(score(formula, &wrong).reward.abs() < f64::EPSILON);
        prop_assert!(score(formula, &cheat).reward.abs() < f64::EPSILON);
    }

    #[test]
    fn a_stored_reward_is_computed_again_from_its_inputs(formula in formula(), inputs in inputs()) {
        let finite = |value: Option<f64>| value.is_none_or(f64::is_finite);
        prop_assume!(finite(inputs.speedup) && finite(inputs.assured_speedup) && finite(inputs.own_kernel_share));
        let stored = score(formula, &inputs);
        prop_assert_eq!(score(formula, &stored.inputs), stored);
    }

    #[test]
    fn being_faster_or_better_rated_never_costs(
        formula in formula(), inputs in inputs(), slow in 0.0..40.0_f64, more in 0.0..40.0_f64, total in 4..20_u32,
    ) {
        let with = |speedup: f64, judge: u32| RewardInputs {
            correct: true,
            major_hacking: false,
            speedup: Some(speedup),
            assured_speedup: Some(speedup),
            judge_total: Some(judge),
            own_kernel_share: Some(0.5),
            ..inputs.clone()
        };
        let reward = |inputs: &RewardInputs| score(formula, inputs).reward;
        prop_assert!(reward(&with(slow + more, total)) >= reward(&with(slow, total)) - 1e-12);
        prop_assert!(reward(&with(slow, total + 1)) >= reward(&with(slow, total)) - 1e-12);
    }

    #[test]
    fn an_absent_judge_never_pays_more_than_a_neutral_one_under_our_function(inputs in inputs(), rules in 4..=20_u32) {
        let absent = RewardInputs { judge_total: None, rule_total: Some(rules), correct: true, major_hacking: false, ..inputs };
        let neutral = RewardInputs { judge_total: Some(12), rule_total: Some(rules.max(12)), ..absent.clone() };
        let formula = RewardFormula::Nightshift1;
        prop_assert!(score(formula, &absent).reward <= score(formula, &neutral).reward + 1e-12);
    }
}
