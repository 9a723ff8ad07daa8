//! Attempts as lists show them.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::attempt::Stage;
use crate::attempt_outcome::AttemptOutcome;
use crate::bound::Bound;
use crate::id::{CampaignId, RunId};
use crate::measurement::Interval;
use crate::target::Target;
use crate::time::TimestampMs;

/// An attempt in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptRow {
    /// Its run.
    pub run: RunId,
    /// The run's campaign.
    pub campaign: CampaignId,
    /// Number within the run, from 1.
    pub number: u32,
    /// Name of the task.
    pub task: String,
    /// Hardware target of the task.
    pub target: Target,
    /// Strategy of the run.
    pub strategy: String,
    /// Who wrote it: `scripted`, or `endpoint/model`.
    pub model: String,
    /// Why it was written.
    pub stage: Stage,
    /// The attempt it was derived from.
    pub parent: Option<u32>,
    /// What happened to it.
    pub outcome: AttemptOutcome,
    /// Whether it is the best one of its run.
    pub best: bool,
    /// Whether its speedup was confirmed in a fresh process.
    pub confirmed: bool,
    /// The published speedup with its interval; none when it was not timed.
    pub speedup: Option<Interval>,
    /// Its speedup over the fastest baseline of its task; none where that baseline is not known.
    #[serde(default)]
    pub speedup_over_fastest: Option<Interval>,
    /// Median time of one call, in nanoseconds.
    pub candidate_median_ns: Option<f64>,
    /// Its reward.
    pub reward: Option<f64>,
    /// Sum of the judge's scores, 4 to 20; none when no judge rated it.
    pub rubric_total: Option<u32>,
    /// What limits it, by its diagnosis.
    pub bound: Option<Bound>,
    /// The critical issue of its diagnosis, in one line, cut to a limit.
    pub issue: Option<String>,
    /// Tokens of its model calls, as far as they are known.
    pub tokens: u64,
    /// What its model calls cost, in US dollars; none when the price of one is not known.
    pub cost_usd: Option<f64>,
    /// The device that it was timed on.
    pub device: Option<String>,
    /// Its source.
    pub source: Option<ArtifactHash>,
    /// When it began.
    pub created_at: TimestampMs,
    /// When it was finished; none while it is in the works.
    pub finished_at: Option<TimestampMs>,
}

/// How many have this value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Facet {
    /// The value.
    pub value: String,
    /// How many.
    pub count: u64,
}

/// Counts by value. Each is counted as if the filter said nothing of the property itself, so that it tells what another
/// choice would find. Most frequent first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Facets {
    /// By outcome.
    pub outcome: Vec<Facet>,
    /// By stage.
    pub stage: Vec<Facet>,
    /// By model.
    pub model: Vec<Facet>,
}

/// Answer to `GET /attempts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptPage {
    /// Attempts.
    pub items: Vec<AttemptRow>,
    /// Cursor of the following page; none at the end.
    pub next: Option<String>,
    /// All attempts that fit the filter, counted, on whichever page they are.
    pub total: u64,
    /// Counts by value, when they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facets: Option<Facets>,
}
