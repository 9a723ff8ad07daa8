//! Runs, their steps and their events, as they are listed and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::attempt::{Attempt, SessionLeft, StopReason};
use crate::baseline::{BaselineSpeedup, FastestBaseline};
use crate::cost::RoleCost;
use crate::id::{CampaignId, RunId, ServerId, StepId, WorkerId};
use crate::measurement::Interval;
use crate::model_call::ModelCallSummary;
use crate::plan::PlanVersion;
use crate::plan_difference::PlanDifference;
use crate::run::{RunStatus, StepStatus};
use crate::step::{PreparedTask, StepFailure};
use crate::step_kind::StepKind;
use crate::task::PrecisionPolicy;
use crate::time::TimestampMs;

/// Number of runs by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunCounts {
    /// Running.
    pub running: u64,
    /// Paused.
    pub paused: u64,
    /// Being cancelled.
    pub cancelling: u64,
    /// Completed.
    pub completed: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl RunCounts {
    /// Runs that are not over.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.running + self.paused + self.cancelling
    }

    /// All runs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.unfinished() + self.completed + self.failed + self.cancelled
    }

    /// Counts `n` more runs of that status.
    pub fn add(&mut self, status: RunStatus, n: u64) {
        let slot = match status {
            RunStatus::Running => &mut self.running,
            RunStatus::Paused => &mut self.paused,
            RunStatus::Cancelling => &mut self.cancelling,
            RunStatus::Completed => &mut self.completed,
            RunStatus::Failed => &mut self.failed,
            RunStatus::Cancelled => &mut self.cancelled,
        };
        *slot += n;
    }
}

/// The few facts of a run that lists show. The strategy computes them with every decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunDigest {
    /// The task's name.
    pub task: String,
    /// `scripted`, or `endpoint/model`.
    pub model: String,
    /// Whether replies were written beforehand.
    pub scripted: bool,
    /// Attempts so far.
    pub attempts: u32,
    /// Number of the best correct attempt.
    pub best_attempt: Option<u32>,
    /// Its speedup.
    pub best_speedup: Option<Interval>,
    /// The fastest way to run the reference without a new program; none before the task is prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fastest_baseline: Option<FastestBaseline>,
    /// Speedup of the best correct attempt over the fastest baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_speedup_over_fastest: Option<Interval>,
    /// Measured times of the best correct attempt; none of runs that ended before digests had them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_times: Option<BestTimes>,
    /// Every measured way to run the reference other than the reference itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<BaselineSpeedup>,
    /// The task's precision policy; none of runs from before it was kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<PrecisionPolicy>,
    /// Whether that speedup was confirmed in a fresh process.
    pub best_confirmed: bool,
    /// Why the run ended.
    pub stop_reason: Option<StopReason>,
    /// What it does or waits for, for example `subtask 1, attempt 3: measure`.
    pub activity: String,
}

/// Times of the best attempt of a run, from its published measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BestTimes {
    /// Median time of one call of the reference, in nanoseconds.
    pub reference_median_ns: f64,
    /// Median time of one call of the attempt, in nanoseconds.
    pub attempt_median_ns: f64,
    /// Share of the roofline that the attempt reaches, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline_share: Option<f64>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSummary {
    /// Id.
    pub id: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// Where it stands.
    pub status: RunStatus,
    /// When it was created.
    pub created_at: TimestampMs,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
    /// What lists show.
    pub digest: RunDigest,
    /// Why it failed, when a step could not be carried out.
    pub failure: Option<StepFailure>,
    /// Head start of its steps.
    #[serde(default)]
    pub priority: i32,
    /// Gates that a person has to open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<String>,
    /// The server that decides for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ServerId>,
}

/// Returns the known precision policies of runs: `reference`, or, where there are several, `reference (3 tasks)` and so on.
#[must_use]
pub fn precision_policies<'r>(runs: impl IntoIterator<Item = &'r RunSummary>) -> Vec<String> {
    let mut counts: BTreeMap<PrecisionPolicy, u64> = BTreeMap::new();
    for policy in runs.into_iter().filter_map(|run| run.digest.precision) {
        *counts.entry(policy).or_default() += 1;
    }
    let is_mixed = counts.len() > 1;
    let named = counts.into_iter().map(|(policy, count)| {
        let tasks = if count == 1 { "task" } else { "tasks" };
        if is_mixed { format!("{} ({count} {tasks})", policy.as_str()) } else { policy.as_str().to_owned() }
    });
    named.collect()
}

/// Everything that is known about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunView {
    /// The task.
    pub task: ArtifactHash,
    /// The prepared reference.
    pub prepared: Option<PreparedTask>,
    /// Plans, oldest first.
    pub plans: Vec<PlanVersion>,
    /// Attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Number of the best correct attempt.
    pub best_attempt: Option<u32>,
    /// Why the run ended.
    pub stop_reason: Option<StopReason>,
    /// Model calls of steps that failed in the end: no plan and no attempt lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_calls: Vec<ModelCallSummary>,
    /// The rest of its agent session; none for a run without a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionLeft>,
}

impl RunView {
    /// Every answered call: those of plans, of attempts, and of steps that failed in the end.
    pub fn calls(&self) -> impl Iterator<Item = &ModelCallSummary> {
        let of_plans = self.plans.iter().flat_map(|plan| &plan.calls);
        let of_attempts = self.attempts.iter().flat_map(|attempt| &attempt.calls);
        of_plans.chain(of_attempts).chain(&self.failed_calls)
    }
}

/// A run with everything about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunDetail {
    /// As in a list.
    pub summary: RunSummary,
    /// What is known.
    pub view: RunView,
    /// Steps that are not over, and why they wait.
    pub open_steps: Vec<StepView>,
    /// What its model calls cost, by the role that asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<RoleCost>,
    /// What each version of the plan does differently from the one before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_differences: Vec<PlanDifference>,
}

/// A step, without input and output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepView {
    /// Id.
    pub id: StepId,
    /// Its run.
    pub run: RunId,
    /// Key within the run, for example `subtask1/attempt3/build`.
    pub key: String,
    /// Kind.
    pub kind: StepKind,
    /// Where it stands.
    pub status: StepStatus,
    /// How often it was begun.
    pub tries: u32,
    /// The lease epoch.
    pub epoch: u64,
    /// Who carries it out, or did.
    pub worker: Option<WorkerId>,
    /// When it was scheduled.
    pub scheduled_at: TimestampMs,
    /// When the last try began.
    pub started_at: Option<TimestampMs>,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
    /// Why the last try failed.
    pub failure: Option<StepFailure>,
    /// Why it is not running: `no worker offers worker/cuda/exclusive`, `retry in 4 s after model.timeout: …`, `the run is paused`.
    pub waiting_for: Option<String>,
}

/// One entry of a run's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventView {
    /// Position in the run's log, from 1, without gaps.
    pub seq: u64,
    /// When it was appended.
    pub at: TimestampMs,
    /// Kind, past tense, for example `step_completed`.
    pub kind: String,
    /// The step's key, for events of a step.
    pub step_key: Option<String>,
    /// The whole event.
    pub body: serde_json::Value,
}

/// Answer to `GET /runs/{id}/events?after=&wait_ms=`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventsPage {
    /// Events after the given position, oldest first.
    pub events: Vec<EventView>,
    /// Where the run stands now.
    pub status: RunStatus,
}
