//! The durable core: runs, steps, leases, retries, timers and signals.
//!
//! The engine decides and has no side effects of its own. It knows no GPU, no model, no HTTP, no SQL, no process, no
//! environment and no wall clock. It reaches the outside through ports: [`store::Store`], [`clock::Clock`] and
//! [`clock::Random`]. The pure [`workflow::Workflow`] says what a run does next.

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
