//! Attempts: a candidate with everything that was found out about it, its diagnosis and its route.

mod agent_tool;
mod call;
mod derived_verdict;
mod earlier_version;
mod failure;
mod new_bests;
mod route;
mod session;

use serde::{Deserialize, Serialize};

pub use self::agent_tool::AgentTool;
pub use self::call::{EDIT_DIVIDER, EDIT_REPLACE, EDIT_SEARCH, MAX_NOTE_CHARS, ProgramEdit, SessionCall, ToolCall};
pub use self::derived_verdict::derived_verdict;
pub use self::earlier_version::EarlierVersion;
pub use self::failure::failure_reason;
pub use self::new_bests::{TimedAttempt, new_bests};
pub use self::route::{DecidedBy, Diagnosis, Route, RouteDecision};
pub use self::session::{AgentTurn, SessionLeft, SessionProgram, SessionRequest, TurnReply};
use crate::artifact::ArtifactHash;
use crate::attempt_memory::{Candidate, Correction, Gain, Modification};
pub use crate::attempt_outcome::AttemptOutcome;
pub use crate::bound::Bound;
use crate::budget::Resource;
use crate::measurement::{Interval, Measurement};
use crate::model_call::ModelCallSummary;
use crate::profile::{Profile, SanitizeReport, roofline_share};
pub use crate::reports::{BuildReport, CheckReport};
use crate::rubric::{RewardBreakdown, Rubric};
use crate::signal::Gate;
use crate::tunable::Tunable;
use crate::tune::TuneReport;
use crate::verdict::{Answer, Finding, Verdict};

/// Why the Coder writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// First program of a subtask.
    Draft,
    /// It did not compile.
    RepairCompile,
    /// It crashed, hung or ate memory.
    RepairRuntime,
    /// It gave wrong results.
    RepairCorrectness,
    /// It broke the rules.
    RepairCompliance,
    /// It is right and should become faster.
    Optimize,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 6] = [
        Self::Draft,
        Self::RepairCompile,
        Self::RepairRuntime,
        Self::RepairCorrectness,
        Self::RepairCompliance,
        Self::Optimize,
    ];

    /// The stage of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == text)
    }

    /// The stored and printed name, also the name of its prompt.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::RepairCompile => "repair_compile",
            Self::RepairRuntime => "repair_runtime",
            Self::RepairCorrectness => "repair_correctness",
            Self::RepairCompliance => "repair_compliance",
            Self::Optimize => "optimize",
        }
    }
}

/// A candidate with everything that was found out about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// Number within the run, from 1.
    pub number: u32,
    /// Version of the plan, from 1.
    pub plan_version: u32,
    /// Subtask of that plan, from 1.
    pub subtask: u32,
    /// Why it was written.
    pub stage: Stage,
    /// The attempt it was derived from.
    pub parent: Option<u32>,
    /// The one change that its author was asked for; none for the first program of a subtask and where nothing was advised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modification: Option<Modification>,
    /// Which candidate of its round it is; none when attempts follow one another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Candidate>,
    /// What happened to it.
    pub outcome: AttemptOutcome,
    /// Its source; none when the reply held no code. With the values that won, once it was tuned.
    pub source: Option<ArtifactHash>,
    /// Versions of the program before this source, oldest first: the Coder fixed each of them in a fix turn, or tried it out
    /// in a turn of an agent session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_versions: Vec<EarlierVersion>,
    /// Turns of the agent session that led to it, oldest first; none where the Coder has no tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<AgentTurn>,
    /// The constants that it declares as tunable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunables: Vec<Tunable>,
    /// Which of their values were tried, and what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuneReport>,
    /// The five answers.
    pub verdict: Verdict,
    /// Observations about compliance from every step.
    pub findings: Vec<Finding>,
    /// The build.
    pub build: Option<BuildReport>,
    /// The checks.
    pub check: Option<CheckReport>,
    /// What the memory and race checker found, on the `cuda` target; the thorough examination when there were two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sanitize: Option<SanitizeReport>,
    /// The measurement.
    pub measurement: Option<Measurement>,
    /// The measurement in a fresh process that confirmed it as the best.
    pub confirmation: Option<Measurement>,
    /// The profile.
    pub profile: Option<Profile>,
    /// What its modification brought, once it was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
    /// The diagnosis.
    pub diagnosis: Option<Diagnosis>,
    /// The Verifier's advice on a failure, where the strategy asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<Correction>,
    /// The rubric.
    pub rubric: Option<Rubric>,
    /// The reward.
    pub reward: Option<RewardBreakdown>,
    /// Model calls made for it.
    pub calls: Vec<ModelCallSummary>,
    /// Where the run went after it.
    pub route: Option<RouteDecision>,
}

impl Attempt {
    /// Returns the folder of the keys of its steps, such as `subtask1/attempt3`.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("subtask{}/attempt{}", self.subtask, self.number)
    }

    /// An attempt of which nothing is known yet.
    #[must_use]
    pub fn new(number: u32, plan_version: u32, subtask: u32, stage: Stage) -> Self {
        Self {
            number,
            plan_version,
            subtask,
            stage,
            parent: None,
            modification: None,
            candidate: None,
            outcome: AttemptOutcome::Pending,
            source: None,
            earlier_versions: Vec::new(),
            turns: Vec::new(),
            tunables: Vec::new(),
            tuning: None,
            verdict: Verdict::default(),
            findings: Vec::new(),
            build: None,
            check: None,
            sanitize: None,
            measurement: None,
            confirmation: None,
            profile: None,
            gain: None,
            diagnosis: None,
            correction: None,
            rubric: None,
            reward: None,
            calls: Vec::new(),
            route: None,
        }
    }

    /// The measurement to be shown: the confirmation, which is independent of the first measurement by which the program was chosen,
    /// or the first one where there is none.
    #[must_use]
    pub fn published(&self) -> Option<&Measurement> {
        self.confirmation.as_ref().or(self.measurement.as_ref())
    }

    /// Returns the share of the roofline that the program reaches, 0 to 1: by its profile, else by the shortest time that the
    /// device allows for the published measurement.
    #[must_use]
    pub fn roofline_share(&self) -> Option<f64> {
        let profiled = self.profile.as_ref().and_then(|profile| profile.roofline_share);
        let by_floor = || {
            let published = self.published()?;
            let floor_ns = published.device.as_ref()?.floor_ns?;
            roofline_share(floor_ns / published.candidate_median_ns)
        };
        // A program that is faster than its roof has no share of a lower one.
        let has_roof = self.profile.as_ref().is_some_and(Profile::has_roof);
        if has_roof { profiled } else { profiled.or_else(by_floor) }
    }

    /// The speedup to be shown; see [`Attempt::published`].
    #[must_use]
    pub fn speedup(&self) -> Option<Interval> {
        self.published().map(|measurement| measurement.speedup)
    }

    /// The lower bound of the published speedup.
    #[must_use]
    pub fn assured_speedup(&self) -> Option<f64> {
        self.published().map(|measurement| measurement.speedup.low)
    }

    /// Is it faster than the baseline, by the published measurement? See [`Measurement::is_fast`].
    #[must_use]
    pub fn is_fast(&self) -> Answer {
        self.published().map_or(Answer::Inconclusive, Measurement::is_fast)
    }
}

/// Why a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StopReason {
    /// The confirmed speedup reached the target.
    TargetReached,
    /// No attempts are left.
    AttemptBudget,
    /// Every subtask is done.
    PlanDone,
    /// No gain, and no replan is left.
    Stagnated,
    /// The Verifier sees nothing more to gain.
    VerifierStopped,
    /// The best program is near the roofline: little is left to gain.
    NearRoofline,
    /// The agent ended its session.
    AgentFinished,
    /// No turns of the agent session are left.
    TurnBudget,
    /// The campaign's budget does not suffice for the next step.
    BudgetExhausted {
        /// What is used up.
        resource: Resource,
    },
    /// A person kept a gate closed, and no new plan is left.
    GateRejected {
        /// Which gate.
        gate: Gate,
        /// Why.
        reason: String,
    },
    /// The task itself cannot be used.
    TaskRejected {
        /// Stable code, for example `task.reference_does_not_compile`.
        code: String,
        /// What is wrong and what to do.
        message: String,
    },
}

impl StopReason {
    /// The stored and printed name.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::TargetReached => "target_reached",
            Self::AttemptBudget => "attempt_budget",
            Self::PlanDone => "plan_done",
            Self::Stagnated => "stagnated",
            Self::VerifierStopped => "verifier_stopped",
            Self::NearRoofline => "near_roofline",
            Self::AgentFinished => "agent_finished",
            Self::TurnBudget => "turn_budget",
            Self::BudgetExhausted { .. } => "budget_exhausted",
            Self::GateRejected { .. } => "gate_rejected",
            Self::TaskRejected { .. } => "task_rejected",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{MachineFacts, SandboxReport};

    fn measurement((low, estimate, high): (f64, f64, f64), precise: bool) -> Measurement {
        Measurement {
            process_pair_speedups: Vec::new(),
            precision: crate::task::PrecisionPolicy::default(),
            speedup: Interval { estimate, low, high },
            confidence: 0.95,
            baseline_median_ns: 1.0,
            candidate_median_ns: 1.0,
            baseline_cv: 0.0,
            candidate_cv: 0.0,
            baseline_samples_ns: Vec::new(),
            candidate_samples_ns: Vec::new(),
            outside_to_inside_time: 1.0,
            achieved_flops_per_s: None,
            achieved_bytes_per_s: None,
            precise,
            baseline: String::new(),
            sandbox: SandboxReport::default(),
            machine: MachineFacts {
                host: String::new(),
                os: String::new(),
                processor: String::new(),
                cores: 1,
                features: Vec::new(),
                memory_bytes: 0,
                last_level_cache_bytes: None,
                core: None,
                cpp_toolchain: None,
                cuda_toolchain: None,
                gpus: Vec::new(),
                sandbox: SandboxReport::default(),
            },
            device: None,
            verification: None,
            cost: Vec::new(),
        }
    }

    fn attempt(first: Option<(f64, f64, f64)>, confirmation: Option<((f64, f64, f64), bool)>) -> Attempt {
        Attempt {
            measurement: first.map(|first| measurement(first, true)),
            confirmation: confirmation.map(|(interval, precise)| measurement(interval, precise)),
            ..Attempt::new(1, 1, 1, Stage::Draft)
        }
    }

    #[test]
    fn the_confirmation_is_published_and_not_the_measurement_that_chose_the_program() {
        let estimate = |first, confirmation| attempt(first, confirmation).speedup().map(|speedup| speedup.estimate);
        let first = Some((1.9, 2.0, 2.1));
        assert_eq!(estimate(None, None), None);
        assert_eq!(estimate(first, None), Some(2.0));
        assert_eq!(estimate(first, Some(((2.4, 2.5, 2.6), true))), Some(2.5));
        assert_eq!(estimate(first, Some(((1.4, 1.5, 1.6), true))), Some(1.5));
        assert_eq!(estimate(first, Some(((1.8, 2.6, 3.4), false))), Some(2.6), "its interval tells how precise it is");
    }

    #[test]
    fn a_program_is_fast_when_the_published_interval_says_so() {
        let answer = |first, confirmation| attempt(first, confirmation).is_fast();
        assert_eq!(answer(None, None), Answer::Inconclusive);
        assert_eq!(answer(Some((1.1, 1.2, 1.3)), None), Answer::Pass);
        assert_eq!(answer(Some((1.1, 1.2, 1.3)), Some(((1.05, 1.1, 1.2), true))), Answer::Pass);
        assert_eq!(answer(Some((1.1, 1.2, 1.3)), Some(((0.9, 1.0, 1.1), true))), Answer::Inconclusive);
        assert_eq!(answer(Some((1.1, 1.2, 1.3)), Some(((0.8, 0.9, 1.0), true))), Answer::Fail);
        assert_eq!(
            answer(Some((1.0, 1.2, 1.3)), None),
            Answer::Inconclusive,
            "an interval that begins at 1 says nothing"
        );
    }

    #[test]
    fn what_the_published_interval_begins_with_is_assured() {
        let assured = |first, confirmation| attempt(first, confirmation).assured_speedup();
        assert_eq!(assured(None, None), None);
        assert_eq!(assured(Some((1.9, 2.0, 2.1)), None), Some(1.9));
        assert_eq!(assured(Some((1.9, 2.0, 2.1)), Some(((1.8, 2.6, 3.4), false))), Some(1.8));
    }
}
