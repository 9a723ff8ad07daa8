//! What may be wrong with a plan, in words that the Planner can act on.

use super::MAX_SUBTASKS;

/// Why a plan cannot be used. The text is made for the repair turn.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanProblem {
    /// Too few or too many.
    #[error("a plan has 1 to {MAX_SUBTASKS} subtasks, this one has {0}")]
    Subtasks(usize),
    /// A field without content.
    #[error("`{0}` is empty")]
    Empty(String),
    /// A name that the task does not have.
    #[error("subtask {subtask} names the operator `{name}`; the task has {known}")]
    UnknownOperator {
        /// Number of the subtask, from 1.
        subtask: usize,
        /// The unknown name.
        name: String,
        /// The task's operators.
        known: String,
    },
    /// A word that means nothing here.
    #[error("`{field}` is `{value}`; it has to be memory, compute, latency, launch or host")]
    Bottleneck {
        /// The field.
        field: String,
        /// Its value.
        value: String,
    },
    /// A number that is no speedup.
    #[error("`{0}` is not a speedup: it has to be a positive number or null")]
    Speedup(String),
    /// A number that is no share.
    #[error("`{0}` is not a share of the time: it has to be a number from 0 to 1, or null")]
    Share(String),
    /// Subtasks that are not in order.
    #[error(
        "subtask {later} is expected to make the whole program {speedup:.2} times as fast and stands behind subtask \
         {earlier} with {least:.2}, by Amdahl's law from `time_share` and `expected_gain`: order subtasks by what they \
         give to the whole program"
    )]
    Order {
        /// Number of the subtask that gives less, from 1.
        earlier: usize,
        /// What it gives.
        least: f64,
        /// Number of the one behind it that gives more.
        later: usize,
        /// What that gives.
        speedup: f64,
    },
    /// A target that the shares do not allow.
    #[error(
        "subtask {subtask} aims at a speedup of {target:.2}, but by Amdahl's law it and those before it can give at most \
         {limit:.2} by their `time_share`"
    )]
    AboveAmdahl {
        /// Number of the subtask, from 1.
        subtask: usize,
        /// Its target.
        target: f64,
        /// The limit.
        limit: f64,
    },
    /// A target that the machine does not allow.
    #[error("subtask {subtask} aims at a speedup of {target:.2}, but the roofline allows at most {limit:.2}: {reason}")]
    AboveRoofline {
        /// Number of the subtask, from 1.
        subtask: usize,
        /// Its target.
        target: f64,
        /// The limit.
        limit: f64,
        /// What it follows from.
        reason: String,
    },
    /// A share that the profile contradicts.
    #[error(
        "`time_share` of subtask {subtask} is {share:.2}, but the profile of the reference shows {low:.2} to {high:.2}"
    )]
    UnlikeProfile {
        /// Number of the subtask, from 1.
        subtask: usize,
        /// What the plan says.
        share: f64,
        /// The least that it can be.
        low: f64,
        /// The most that it can be.
        high: f64,
    },
    /// A border that contradicts the task.
    #[error("subtask {subtask} has the tensor `{name}` at its border as {given}; the task has it as {known}")]
    Border {
        /// Number of the subtask, from 1.
        subtask: usize,
        /// The tensor.
        name: String,
        /// What the plan says of it.
        given: String,
        /// What the task says of it.
        known: String,
    },
    /// Text or list beyond the limits.
    #[error("`{0}` is too long")]
    TooLong(String),
}
