//! Rewards under a named formula, with every input and every term, so that history can be scored anew.

use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::rubric::{Rubric, Skill};
use crate::time::TimestampMs;

/// A reward function with its version. A version never changes: a better function is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RewardFormula {
    /// The published one: speedup and the judge's total. Runs are rewarded by it.
    #[serde(rename = "published.1")]
    Published1,
    /// Ours: assured speedup, the share of time in own kernels, rules beside the judge.
    #[serde(rename = "nightshift.1")]
    Nightshift1,
}

impl RewardFormula {
    /// Every formula.
    pub const ALL: [Self; 2] = [Self::Published1, Self::Nightshift1];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Published1 => "published.1",
            Self::Nightshift1 => "nightshift.1",
        }
    }

    /// The formula of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|formula| formula.as_str() == text)
    }
}

/// What a formula looks at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RewardInputs {
    /// Which skill is rewarded.
    pub skill: Skill,
    /// Whether the attempt is right and kept the contract.
    pub correct: bool,
    /// Whether rules or judge saw a grave cheat.
    #[serde(default)]
    pub major_hacking: bool,
    /// The published speedup; none when it was not timed.
    #[serde(default)]
    pub speedup: Option<f64>,
    /// The lower bound of the published speedup.
    #[serde(default)]
    pub assured_speedup: Option<f64>,
    /// Sum of the judge's scores; none when the judge was not available or not asked.
    #[serde(default)]
    pub judge_total: Option<u32>,
    /// Sum of the rules' scores; none when there was no evidence to score.
    #[serde(default)]
    pub rule_total: Option<u32>,
    /// Share of the device's time in the program's own kernels, 0 to 1; none when it was not measured.
    #[serde(default)]
    pub own_kernel_share: Option<f64>,
}

/// A part of a reward, by the name that the formula gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RewardTerm {
    /// Name.
    pub name: String,
    /// Value.
    pub value: f64,
}

/// A reward with everything that led to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScoredReward {
    /// The formula.
    pub formula: RewardFormula,
    /// What went in.
    pub inputs: RewardInputs,
    /// Its parts, in the order in which they are computed.
    pub terms: Vec<RewardTerm>,
    /// The reward.
    pub reward: f64,
}

/// The score of an attempt, computed after its run had made its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptScore {
    /// The attempt's number.
    pub attempt: u32,
    /// Version of the rules that scored the evidence.
    pub rules_version: u32,
    /// The rubric: rules of that version, and the judge's opinion as it was given.
    pub rubric: Rubric,
    /// The reward.
    pub scored: ScoredReward,
    /// When it was computed.
    pub at: TimestampMs,
}

/// Asks for scores of a run's attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rescore {
    /// The formulas; all of them when it is empty.
    #[serde(default)]
    pub formulas: Vec<RewardFormula>,
}

/// Scores of a run's attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunScores {
    /// The run.
    pub run: RunId,
    /// By attempt and formula.
    pub scores: Vec<AttemptScore>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_stored_by_its_printed_name() {
        for formula in RewardFormula::ALL {
            assert_eq!(RewardFormula::parse(formula.as_str()), Some(formula));
            let stored = serde_json::to_string(&formula).unwrap_or_default();
            assert_eq!(stored, format!("\"{}\"", formula.as_str()));
        }
        assert_eq!(RewardFormula::parse("published.2"), None);
    }
}
