//! The only SQL: the engine's [`Store`](nightshift_engine::store::Store) port over sqlx and sea-query.
//!
//! It never decides: what follows a failure, which step comes next and when a lease runs out is the engine's to say.
//! Here it is committed, or refused because somebody else was first.
//!
//! Read [`sqlite`] first, then `sqlite/writer.rs`, then one file per noun. [`fault`] is for tests.

pub mod fault;
mod json;
mod number;
mod run_list;
pub mod sqlite;

pub use sqlite::{OpenOptions, SqliteStore};
