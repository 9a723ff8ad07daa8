//! The workload that every engine of the comparison runs: workflows of [`STEPS_PER_WORKFLOW`] sequential durable steps
//! that add one, a fixed number of them in flight, every result checked.
//!
//! It knows no engine: an adapter hands in a function that runs one workflow and waits for its result.

mod drive;
mod figure;

pub use drive::{DriveError, Timing, drive};
pub use figure::{Figure, PostgresCost, System};

use std::num::{NonZeroU32, NonZeroU64};

/// Sequential durable steps in each workflow.
pub const STEPS_PER_WORKFLOW: u64 = 10;

/// How much to run, from the command line.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Load {
    /// Workflows in flight at once
    #[arg(long, default_value = "64")]
    pub in_flight: NonZeroU32,
    /// Workflows in the timed part
    #[arg(long, default_value = "1000")]
    pub workflows: NonZeroU64,
    /// Workflows before the timed part, under the same number in flight
    #[arg(long, default_value_t = 20)]
    pub warm_up: u64,
}
