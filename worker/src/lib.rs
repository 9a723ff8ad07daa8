//! The worker: leases steps from the server, builds programs, runs them in sandboxed processes, checks and measures them.
//!
//! It holds no database credentials and no model keys, and speaks only HTTP to the server. Candidate code never runs
//! in the worker's own process: the same binary is executed again as `__jail` (compilers) and `__runner` (programs).

pub mod artifacts;
mod child;
mod config;
pub mod execute;
pub mod gpu;
pub mod lease;
mod memory_budget;
pub mod offers;
mod reference_cache;
pub mod scratch;
pub mod server_api;
mod trace;
mod tune;

pub use child::child_main;
pub use execute::examine;
pub use nightshift_evaluator::cores::TimedCores;
pub use trace::{Spans, send_spans};
