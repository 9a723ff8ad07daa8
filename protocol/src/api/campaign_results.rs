//! What came out of a campaign, over all of its attempts: the numbers that its page draws.

use serde::{Deserialize, Serialize};

use super::attempt_list::Facet;
use super::boards::ModelBoard;
use crate::attempt_outcome::AttemptOutcome;
use crate::id::RunId;
use crate::time::TimestampMs;

/// Maximum number of attempts that are listed one by one.
pub const MAX_RESULT_MARKS: usize = 600;
/// Most runs of which is told how their best grew: those that got furthest.
pub const MAX_RESULT_LINES: usize = 8;
/// Most bests of one of them.
pub const MAX_LINE_POINTS: usize = 200;
/// Maximum number of devices that are listed.
pub const MAX_RESULT_DEVICES: usize = 100;

/// Answer to `GET /campaigns/{id}/results`. Counts are over all attempts; what may be thinned says of how many it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignResults {
    /// All of its attempts.
    pub attempts: u64,
    /// Attempts by outcome, the most frequent first.
    pub outcomes: Vec<Facet>,
    /// Attempts that were confirmed as the best of their run when they were made.
    pub kept: u64,
    /// Right attempts that were not.
    pub discarded: u64,
    /// Attempts that were wrong in one way or another.
    pub failed: u64,
    /// Attempts in the works.
    pub pending: u64,
    /// Attempts one by one, by run and number, at most [`MAX_RESULT_MARKS`]: with more than that, those that were the best
    /// of their time come before the others, and of each kind they are taken evenly.
    pub marks: Vec<ResultMark>,
    /// Of how many attempts: those at the places that were asked for, or all.
    #[serde(default)]
    pub marks_of: u64,
    /// How the best of runs grew, at most [`MAX_RESULT_LINES`] of them: those with the fastest programs, in their order.
    pub lines: Vec<ResultLine>,
    /// Runs with a confirmed best program.
    pub timed_runs: u64,
    /// Speedups of right attempts, sorted; with more than [`MAX_RESULT_MARKS`], taken evenly with the lowest and the highest.
    pub speedups: Vec<f64>,
    /// How many right and timed attempts there are.
    pub timed: u64,
    /// Speedups of right attempts over the fastest baseline of their task, sorted and taken like `speedups`.
    #[serde(default)]
    pub speedups_over_fastest: Vec<f64>,
    /// How many right and timed attempts have a known fastest baseline.
    #[serde(default)]
    pub timed_over_fastest: u64,
    /// The steps of the curve `fast_p`, from p = 0 on; with more than [`MAX_RESULT_MARKS`] runs, taken evenly.
    pub fast_p: Vec<FastP>,
    /// The same over the fastest baseline, without the runs whose best program has no known fastest baseline.
    #[serde(default)]
    pub fast_p_over_fastest: Vec<FastP>,
    /// Models under strategies.
    pub models: Vec<ModelBoard>,
    /// Devices, those with the most attempts first, at most [`MAX_RESULT_DEVICES`].
    pub devices: Vec<DeviceUse>,
    /// For how long steps of attempts that were never timed were on a device, in milliseconds.
    #[serde(default)]
    pub untimed_device_ms: u64,
}

/// A place of the curve `fast_p`: the share of the campaign's runs whose best program is correct and more than p times as
/// fast as its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FastP {
    /// The speedup.
    pub p: f64,
    /// The share, 0 to 1.
    pub share: f64,
}

/// An attempt, as a dot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResultMark {
    /// Its place among all attempts of the campaign by run and number, from 1.
    pub place: u64,
    /// Its run.
    pub run: RunId,
    /// Name of the task.
    pub task: String,
    /// Its number.
    pub number: u32,
    /// What happened to it.
    pub outcome: AttemptOutcome,
    /// The speedup over the reference, when it is right and was timed.
    pub speedup: Option<f64>,
    /// The speedup over the fastest baseline, where that baseline is known, too.
    #[serde(default)]
    pub speedup_over_fastest: Option<f64>,
    /// Whether it was the best of its run when it was made.
    pub kept: bool,
}

/// How the best of a run grew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResultLine {
    /// The run.
    pub run: RunId,
    /// Name of the task.
    pub task: String,
    /// Its bests, oldest first; at most [`MAX_LINE_POINTS`], taken evenly.
    pub bests: Vec<BestAt>,
    /// How many there were.
    pub grew: u64,
    /// The last moment that is known of its attempts.
    pub until: TimestampMs,
}

/// A best of its time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BestAt {
    /// When it was finished.
    pub at: TimestampMs,
    /// Its number.
    pub number: u32,
    /// Its speedup over the reference.
    pub speedup: f64,
    /// Its speedup over the fastest baseline, where that baseline is known.
    #[serde(default)]
    pub speedup_over_fastest: Option<f64>,
}

/// What a device was used for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceUse {
    /// Its name.
    pub device: String,
    /// Runs with an attempt that was timed on it.
    pub runs: u64,
    /// Attempts that were timed on it.
    pub attempts: u64,
    /// The fastest of those that became the best of their run.
    pub best_speedup: Option<f64>,
    /// The highest of their speedups over the fastest baseline of their task.
    #[serde(default)]
    pub best_speedup_over_fastest: Option<f64>,
    /// For how long steps of them were on a device, in milliseconds.
    #[serde(default)]
    pub device_ms: u64,
    /// When the first of them began.
    pub first_at: TimestampMs,
    /// When the last of them was finished, as far as one was.
    pub last_at: TimestampMs,
}
