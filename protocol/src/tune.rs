//! The search over a program's tunables: what it may use up, what it tried, and what won.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::measurement::Interval;
use crate::reports::{BuildReport, CheckReport};
use crate::tunable::Tunable;

/// What one search may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TuneBudget {
    /// Most variants that are built.
    pub max_variants: u32,
    /// After this much wall time, in milliseconds, nothing further is begun.
    pub wall_ms: u64,
}

/// What came of one variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum VariantOutcome {
    /// Nothing was begun for it: the budget was used up.
    NotReached,
    /// It did not compile.
    NotBuilt,
    /// It did not survive its calls.
    Failed,
    /// It gave wrong results, or broke the rules.
    Wrong,
    /// It was timed, and others were faster.
    Slower,
    /// It is the program as it was written, and no other was faster.
    Kept,
    /// It won.
    Chosen,
}

impl VariantOutcome {
    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotReached => "not_reached",
            Self::NotBuilt => "not_built",
            Self::Failed => "failed",
            Self::Wrong => "wrong",
            Self::Slower => "slower",
            Self::Kept => "kept",
            Self::Chosen => "chosen",
        }
    }
}

/// One variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TunedVariant {
    /// Values of the tunables, in the order of their declarations.
    pub values: Vec<i64>,
    /// What came of it.
    pub outcome: VariantOutcome,
    /// Rounds in which it was timed.
    pub rounds: u32,
    /// Speedup over the baseline in the last of them. For the choice alone: what is published is measured anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup: Option<Interval>,
    /// Why it was dropped, where that needs words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TuneEnd {
    /// One variant was left, or the order of those that were left did not change any more.
    Settled,
    /// The budget was used up; the best so far counts.
    BudgetUsed,
    /// No variant came through.
    NothingLeft,
}

impl TuneEnd {
    /// In words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::BudgetUsed => "the budget was used up",
            Self::NothingLeft => "no variant came through",
        }
    }
}

/// A finished search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TuneReport {
    /// The declarations.
    pub tunables: Vec<Tunable>,
    /// How many variants there are altogether.
    pub configurations: u32,
    /// Those that were looked at, the one as it was written first.
    pub variants: Vec<TunedVariant>,
    /// Rounds of timing.
    pub rounds: u32,
    /// Why it ended.
    pub end: TuneEnd,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// The program as it was written.
    pub declared: ArtifactHash,
}

impl TuneReport {
    /// The variant that won; none when the program stays as it was written.
    #[must_use]
    pub fn chosen(&self) -> Option<&TunedVariant> {
        self.variants.iter().find(|variant| variant.outcome == VariantOutcome::Chosen)
    }

    /// `TILE = 64, UNROLL = 4`.
    #[must_use]
    pub fn values_text(&self, values: &[i64]) -> String {
        let pairs = self.tunables.iter().zip(values);
        pairs.map(|(tunable, value)| format!("{} = {value}", tunable.name)).collect::<Vec<_>>().join(", ")
    }

    /// Returns the variant that the program goes on with.
    fn leader(&self) -> Option<&TunedVariant> {
        let leads = |variant: &&TunedVariant| matches!(variant.outcome, VariantOutcome::Chosen | VariantOutcome::Kept);
        self.variants.iter().find(leads)
    }

    /// Whether a variant was timed as slower than the one that the program goes on with, but with intervals that overlap.
    #[must_use]
    pub fn is_indistinguishable(&self, variant: &TunedVariant) -> bool {
        let both = variant.speedup.zip(self.leader().and_then(|leader| leader.speedup));
        variant.outcome == VariantOutcome::Slower && both.is_some_and(|(own, best)| own.high >= best.low)
    }

    /// What came of each variant that something was begun for.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let tried = self.variants.iter().filter(|variant| variant.outcome != VariantOutcome::NotReached);
        tried
            .map(|variant| {
                let speedup = variant.speedup.map_or_else(String::new, |speedup| {
                    format!("{:.2}x [{:.2}, {:.2}], ", speedup.estimate, speedup.low, speedup.high)
                });
                let why = variant.message.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                let outcome = if self.is_indistinguishable(variant) {
                    "indistinguishable from the best".to_owned()
                } else {
                    variant.outcome.as_str().replace('_', " ")
                };
                format!("{}: {speedup}{outcome}{why}", self.values_text(&variant.values))
            })
            .collect()
    }

    /// What came of it, in one sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        let speedup = |variant: Option<&TunedVariant>| {
            variant.and_then(|variant| variant.speedup).map(|speedup| format!("{:.2}x", speedup.estimate))
        };
        let tried = self.variants.iter().filter(|variant| variant.outcome != VariantOutcome::NotReached).count();
        let of = format!("{tried} of {} variants in {} ms, {}", self.configurations, self.wall_ms, self.end.describe());
        let before = speedup(self.variants.first()).unwrap_or_else(|| "untimed".to_owned());
        match self.chosen() {
            Some(chosen) => {
                let after = speedup(Some(chosen)).unwrap_or_else(|| "untimed".to_owned());
                format!("{} ({before} as written, {after} tuned; {of})", self.values_text(&chosen.values))
            }
            None => format!("as written ({before}; {of})"),
        }
    }
}

/// The program with the values that won, built and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TunedProgram {
    /// Its source: the values are written into the declarations.
    pub source: ArtifactHash,
    /// Its build.
    pub build: BuildReport,
    /// Its check, which it passed.
    pub check: CheckReport,
}
