//! Strategies: what a run does next, as pure functions of its history.
//!
//! Nothing in here does anything: no I/O, no clock, no randomness. The same history gives the same decisions.
//!
//! [`StrategyWorkflow`] folds events into the state of a run, climbs the Verifier's ladder for each attempt, and asks a
//! [`Strategy`] three things: how the first attempts begin, where the run goes once attempts are finished, and what the
//! agents are given on the way. A strategy is one file in this folder and one line in [`STRATEGIES`].

mod advice;
mod agent;
mod attempt;
mod attempt_step;
mod beam;
mod changes;
mod confirmation;
mod failed_attempt;
mod fix;
mod forge;
mod gain;
mod gate;
mod goal;
mod group;
mod history;
mod memory;
mod method;
mod modification;
mod opening;
mod order;
mod routing;
mod rules;
mod sanitize;
mod session;
mod share;
mod shared;
mod state;
mod stitch;
mod tune;
mod workflow;

pub use advice::{MAX_ADVICE_CHARS, MAX_HINTS};
pub use changes::{ChangedAttempts, changed_attempts};
pub use goal::{
    DEFAULT_CANDIDATES_PER_ROUND, DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_FIX_TURNS, DEFAULT_MAX_REPLANS, DEFAULT_MAX_TURNS,
    DEFAULT_MIN_GAIN, DEFAULT_REPLAN_AFTER_FAILED, DEFAULT_REPLAN_AFTER_STAGNANT, MAX_ATTEMPTS,
    MAX_CANDIDATES_PER_ROUND, MAX_FIX_TURNS, MAX_TURNS, effective_goal,
};
pub use history::{MAX_HISTORY_LINE_CHARS, MAX_HISTORY_LINES};
pub use memory::MAX_MEMORY_TOKENS;
pub use order::{cost_ms, retry_policy, timeout_ms};
pub use rules::RULES;
pub use tune::DEFAULT_MAX_VARIANTS;
pub use workflow::{STATE_FORMAT, StrategyWorkflow, initial_digest, view};

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::RouteDecision;

use self::opening::Opening;
use self::routing::Next;
use self::state::RunState;

/// The strategy of a campaign that names none.
pub const DEFAULT_STRATEGY: &str = "stitch";

/// Fewest answers to the same prompt that can be compared.
const MIN_GROUP: u32 = 2;

/// Every strategy, the default first.
static STRATEGIES: &[&dyn Strategy] = &[&stitch::Stitch, &forge::Forge, &beam::Beam, &group::Group, &agent::Agent];

/// How a run searches. Pure: what it is asked, it answers from the state alone.
trait Strategy: Sync {
    /// Its name in campaigns.
    fn name(&self) -> &'static str;

    /// What it does, in one line for people.
    fn about(&self) -> &'static str;

    /// Attempts of a run, unless task or campaign say otherwise.
    fn default_max_attempts(&self) -> u32 {
        DEFAULT_MAX_ATTEMPTS
    }

    /// Whether a Planner is asked. Without one, the whole program is the only subtask.
    fn plans(&self) -> bool {
        true
    }

    /// Whether the Verifier says what to mend in an attempt that failed.
    fn corrects(&self) -> bool {
        false
    }

    /// Whether agents are told what was tried before the attempt that they start from.
    fn remembers(&self) -> bool {
        true
    }

    /// Whether attempts that begin together are given the very same prompt, and answer it in one reply. Without it, each
    /// is told which of the candidates it is, and may mend a reply that cannot be used.
    fn same_prompt(&self) -> bool {
        false
    }

    /// Whether the Coder has tools, and works on an attempt over many turns until it submits a program.
    fn has_session(&self) -> bool {
        false
    }

    /// Whether a round has as many candidates as the campaign says.
    fn takes_candidates(&self) -> bool {
        false
    }

    /// The attempts that begin under the plan in force.
    fn begin(&self, run: &RunState) -> Vec<Opening>;

    /// Where the run goes, now that these attempts are finished: they were in the works together, and all others were
    /// finished before.
    fn next(&self, run: &RunState, finished: &[u32]) -> Result<(RouteDecision, Next), WorkflowError>;
}

/// The strategy of that name.
fn find(name: &str) -> Option<&'static dyn Strategy> {
    STRATEGIES.iter().copied().find(|strategy| strategy.name() == name)
}

/// Whether there is a strategy of that name.
#[must_use]
pub fn is_known(name: &str) -> bool {
    find(name).is_some()
}

/// Every strategy with what it does, the default first.
#[must_use]
pub fn known() -> Vec<(&'static str, &'static str)> {
    STRATEGIES.iter().map(|strategy| (strategy.name(), strategy.about())).collect()
}

/// Fewest candidates that a round of this strategy may have: answers that are to be compared are two at least.
#[must_use]
pub fn min_candidates(name: &str) -> u32 {
    if find(name).is_some_and(Strategy::same_prompt) { MIN_GROUP } else { 1 }
}

/// Returns the names of the strategies whose Coder has tools and turns.
#[must_use]
pub fn with_session() -> Vec<&'static str> {
    STRATEGIES.iter().filter(|strategy| strategy.has_session()).map(|strategy| strategy.name()).collect()
}

/// The names of the strategies whose rounds have as many candidates as the campaign says.
#[must_use]
pub fn with_candidates() -> Vec<&'static str> {
    STRATEGIES.iter().filter(|strategy| strategy.takes_candidates()).map(|strategy| strategy.name()).collect()
}

/// The names of every strategy, for a message.
#[must_use]
pub fn known_names() -> String {
    STRATEGIES.iter().map(|strategy| strategy.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_first_and_no_name_is_given_twice() {
        let names: Vec<&str> = known().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.first(), Some(&DEFAULT_STRATEGY));
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert!(names.iter().all(|name| is_known(name)) && !is_known("magic"));
        assert_eq!(known_names(), names.join(", "));
    }
}
