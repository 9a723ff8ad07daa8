//! The durable core: runs, steps, leases, retries, timers and signals.
//!
//! It decides and never does: it knows no GPU, no model, no HTTP, no SQL, no process, no environment and no wall clock.
//! What it needs from outside are ports: [`store::Store`], [`clock::Clock`], [`clock::Random`], and the pure
//! [`workflow::Workflow`] that says what a run does next.

pub mod admission;
pub mod clock;
pub mod driver;
pub mod event;
pub mod ownership;
pub mod retry;
pub mod store;
pub mod sweeper;
pub mod window;
pub mod workflow;
