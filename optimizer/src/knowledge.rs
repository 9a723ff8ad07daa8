//! What prompts are given beside the run's own history: short notes about how programs become faster, and lessons that
//! other runs left behind.
//!
//! Choosing among what was found is pure ([`select`]); the search itself is the store's.

pub mod lesson;
pub mod note;
pub mod select;

pub use nightshift_protocol::api::{Retrieved, RetrievedLesson, RetrievedNote};
use nightshift_protocol::attempt::Bound;
use nightshift_protocol::plan::Subtask;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::task::TaskSpec;

/// What a prompt is about.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The task.
    pub spec: &'a TaskSpec,
    /// The prepared reference, for the machine.
    pub prepared: &'a PreparedTask,
    /// The subtask; none where the whole program is planned.
    pub subtask: Option<&'a Subtask>,
    /// What limits the program; none when neither a diagnosis nor a plan says so.
    pub bound: Option<Bound>,
    /// What else was said: a critical issue, a modification, the reason of a replan.
    pub said: &'a str,
}
