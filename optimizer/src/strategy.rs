//! Strategies: what a run does next, as pure functions of its history.
//!
//! There is one so far, [`StitchWorkflow`]: plan, write, verify, and route by the Verifier's evidence. Nothing in here
//! does anything: no I/O, no clock, no randomness. The same history gives the same decisions.

mod advice;
mod attempt;
mod gate;
mod goal;
mod history;
mod order;
mod routing;
mod sanitize;
mod share;
mod state;
mod stitch;

pub use advice::{MAX_ADVICE_CHARS, MAX_HINTS};
pub use goal::{
    DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_REPLANS, DEFAULT_MIN_GAIN, DEFAULT_REPLAN_AFTER_FAILED,
    DEFAULT_REPLAN_AFTER_STAGNANT, MAX_ATTEMPTS, effective_goal,
};
pub use history::{MAX_HISTORY_LINE_CHARS, MAX_HISTORY_LINES};
pub use order::{cost_ms, retry_policy, timeout_ms};
pub use stitch::{STRATEGY, StitchWorkflow, initial_digest, view};
