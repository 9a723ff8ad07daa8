//! What Nightshift's tests need from outside the workspace. A dependency of tests only: nothing that ships uses it, and
//! it uses nothing of ours.
//!
//! [`postgres`] gives a test program a PostgreSQL cluster of its own; [`executable`] writes programs that can be started
//! at once.

pub mod executable;
pub mod postgres;
