//! A machine: leases steps from the server, builds programs, runs them in throw-away sandboxed processes, checks and
//! measures them.
//!
//! It holds no database credentials and no model keys, and speaks only HTTP to the server. Candidate code never runs
//! in the worker's own process: the same binary is executed again as `__jail` (compilers) and `__runner` (programs).

pub mod artifacts;
pub mod build;
pub mod build_cache;
pub mod check;
pub mod compare;
pub mod compiler_output;
mod cost;
pub mod disassembly;
pub mod execute;
mod golden;
pub mod gpu;
pub mod inputs;
pub mod known;
pub mod lease;
pub mod machine;
pub mod measure;
pub mod nvcc;
pub mod offers;
mod origin;
mod parts;
pub mod port;
pub mod prepare;
pub mod process;
pub mod profile;
pub mod profilers;
mod reference_cache;
mod room;
pub mod runner;
pub mod sandbox;
pub mod scratch;
pub mod statistics;
mod stock;
pub mod symbols;
pub mod toolchain;
pub mod torch;
mod trace;
mod tune;

pub use execute::examine;
pub use trace::{Spans, send_spans};
