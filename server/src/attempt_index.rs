//! Maintains the index of attempts: writes the states of runs into it after their commits.
//!
//! The index is derived data, so no call waits for it. A notice triggers the update of a changed run, which lists show
//! a moment later. A slow scan of all runs finds changes without a notice: an imported campaign, a new format of the
//! index, or a server that ended before writing. Writing the same twice is harmless, so replicas need not coordinate. A
//! run that is known to belong to another server is left to that server first.
//!
//! An [`Indexer`] remembers active runs, so a step costs the same at attempt 5 and at attempt 200.

mod indexer;
mod known_runs;
mod project;
mod texts;

pub use indexer::Indexer;
pub use project::{AttemptSpan, FORM, indexed_attempts};
