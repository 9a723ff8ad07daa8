//! Leaderboards: tasks, and models.

use serde::{Deserialize, Serialize};

use super::attempt_list::AttemptRow;
use crate::id::RunId;
use crate::target::Target;
use crate::time::TimestampMs;

/// Values of p for which `fast_p` is told: the share of runs whose best program is correct and more than p times as fast as
/// its baseline.
pub const FAST_P_THRESHOLDS: [f64; 4] = [1.0, 1.5, 2.0, 3.0];

/// A best attempt of its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BestSoFar {
    /// When it was finished.
    pub at: TimestampMs,
    /// Its run.
    pub run: RunId,
    /// Its number.
    pub number: u32,
    /// Its speedup over the reference.
    pub speedup: f64,
    /// Its speedup over the fastest baseline, where that baseline is known.
    #[serde(default)]
    pub speedup_over_fastest: Option<f64>,
}

/// A task on a device, in `GET /tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskBoard {
    /// Name of the task.
    pub task: String,
    /// Hardware target of the task.
    pub target: Target,
    /// The device; none for runs of which no attempt was timed.
    pub device: Option<String>,
    /// Runs that timed an attempt on it.
    pub runs: u64,
    /// Their attempts: those that were timed on this device, and those of no device that belong to a run of it.
    pub attempts: u64,
    /// Campaigns of these runs.
    pub campaigns: u64,
    /// The fastest of the attempts that became the best of their run.
    pub best: Option<AttemptRow>,
    /// How the best speedup grew over all campaigns, oldest first; the last ones, when there are many.
    pub history: Vec<BestSoFar>,
}

/// A model under a strategy, in `GET /models`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelBoard {
    /// `scripted`, or `endpoint/model`.
    pub model: String,
    /// The strategy.
    pub strategy: String,
    /// Runs with an attempt that it wrote.
    pub runs: u64,
    /// Attempts that it wrote.
    pub attempts: u64,
    /// Of these, attempts that are finished.
    pub finished: u64,
    /// Share of the finished ones that gave right results, 0 to 1; none when none is finished.
    pub correct_share: Option<f64>,
    /// Median over the runs of their best speedup, where one was timed.
    pub median_best_speedup: Option<f64>,
    /// The same of their speedups over the fastest baseline, where that baseline is known.
    #[serde(default)]
    pub median_best_speedup_over_fastest: Option<f64>,
    /// `fast_p` for each of [`FAST_P_THRESHOLDS`], in their order: the share of runs whose best program is correct and more
    /// than p times as fast as its reference.
    pub fast_p: Vec<f64>,
    /// `fast_p` over the fastest baseline. A run whose best program is correct and whose fastest baseline is not known does not
    /// count; empty where no run counts.
    #[serde(default)]
    pub fast_p_over_fastest: Vec<f64>,
    /// Tokens, as far as they are known.
    pub tokens: u64,
    /// Price in US dollars, as far as it is known.
    pub cost_usd: f64,
    /// Attempts of which the price of a call is not known.
    pub unpriced_attempts: u64,
}
