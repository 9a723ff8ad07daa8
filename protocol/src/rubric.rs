//! The rubric and the reward: how an attempt is scored, and every input of the score.

use serde::{Deserialize, Serialize};

/// The two atomic skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Skill {
    /// Task to code.
    FromScratch,
    /// Feedback to better code.
    Refinement,
}

/// Four scores, each from 1 to 5, under the paper's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RubricScores {
    /// 5: no sign of gaming; 1: plain cheating.
    pub anti_hacking: u8,
    /// Engineering quality (from scratch: performance quality; refinement: effect on the bottleneck).
    pub cuda_engineering: u8,
    /// How much of the dominant work is covered.
    pub operator_coverage: u8,
    /// Focus on what was asked.
    pub skill_compliance: u8,
}

impl RubricScores {
    /// Sum of the four, 4 to 20. Always computed, never taken from a judge.
    #[must_use]
    pub fn total(&self) -> u32 {
        u32::from(self.anti_hacking)
            + u32::from(self.cuda_engineering)
            + u32::from(self.operator_coverage)
            + u32::from(self.skill_compliance)
    }
}

/// The model judge's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JudgeOpinion {
    /// It answered.
    Rated {
        /// The scores.
        scores: RubricScores,
        /// Whether it saw a grave cheat.
        major_hacking: bool,
        /// Its reasons.
        reasons: Vec<String>,
    },
    /// It did not answer, or not in the form that was asked for. Never replaced by a neutral score.
    JudgeUnavailable {
        /// Why.
        reason: String,
    },
}

/// The rubric of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rubric {
    /// Which skill is scored.
    pub skill: Skill,
    /// Scores that were computed from evidence, without any model.
    pub rules: RubricScores,
    /// Why the rules gave these scores.
    pub rule_reasons: Vec<String>,
    /// Whether the evidence itself shows a grave cheat.
    pub rule_major_hacking: bool,
    /// The model judge's part.
    pub judge: JudgeOpinion,
}

/// Every input of the reward function and every part of its result, so that it can be recomputed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RewardBreakdown {
    /// Version of the function.
    pub version: u32,
    /// Whether the attempt is correct and compliant.
    pub correct: bool,
    /// Whether rules or judge saw a grave cheat.
    pub major_hacking: bool,
    /// Speedup that went in.
    pub speedup: f64,
    /// Sum of the scores that went in; none when the judge was unavailable (the reward is then the base alone).
    pub rubric_total: Option<u32>,
    /// Weight of the rubric.
    pub lambda: f64,
    /// The base, before the rubric.
    pub base: f64,
    /// The reward.
    pub reward: f64,
}
