//! A machine: leases steps from the server, builds programs, runs them in throw-away sandboxed processes, checks and
//! measures them.
//!
//! It holds no database credentials and no model keys, and speaks only HTTP to the server. Candidate code never runs
//! in the worker's own process: the same binary is executed again as `__jail` (compilers) and `__runner` (programs).

pub mod artifacts;
pub mod check;
mod child;
pub mod compare;
mod cost;
pub mod execute;
mod golden;
pub mod gpu;
pub mod inputs;
pub mod known;
pub mod lease;
pub mod measure;
pub mod offers;
mod parts;
pub mod port;
pub mod prepare;
pub mod profile;
pub mod profilers;
mod reference_cache;
mod room;
pub mod runner;
pub mod scratch;
pub mod statistics;
mod stock;
pub mod torch;
mod trace;
mod tune;

pub use child::child_main;
pub use execute::examine;
pub use trace::{Spans, send_spans};
