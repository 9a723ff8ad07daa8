//! The only crate with SQL for the database of Nightshift. It implements the engine's [ports](nightshift_engine::store) over sqlx,
//! rusqlite and sea-query, on SQLite and on Postgres.
//!
//! The engine decides what follows a failure, which step comes next and when a lease expires. The store commits the
//! decision, or refuses it because another transaction came first.
//!
//! Read `store.rs` (opening) and `port/` (the ports, mostly one line per method) first. Hot changes go through the tasks of
//! `writer.rs` into `scheduling.rs`. Everything else is in `catalog/`, one file per noun or verb. Only `scheduling/admit.rs`
//! makes a step ready. The index of attempts is derived from the other data and has a port of its own, in `attempt.rs` and
//! `search.rs`. The databases differ in `connection.rs`, `sqlite/`, `postgres/`, and in statements with two texts.
//! [`fault`] is for tests.

mod catalog;
mod connection;
mod created;
mod failure;
pub mod fault;
mod invariants;
mod json;
mod notices;
mod number;
mod objects;
mod packed;
mod page;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod plans;
pub mod postgres;
mod process_cache;
mod public_id;
mod redo;
mod row;
mod run_reads;
mod scheduling;
mod search;
mod source;
mod sql;
pub mod sqlite;
mod store;
mod surroundings;
mod transaction;
mod value;
mod writer;

// Before the other modules, for its macros.
#[macro_use]
mod port;
mod attempt;
mod attempt_columns;

pub use attempt::{
    AttemptIndex, CampaignBest, Document, DocumentKey, IndexedAttempt, IndexedRun, MAX_ATTEMPT_ROWS,
    MAX_DOCUMENT_BYTES, RunChanges,
};
pub use catalog::campaign::MAX_RUNS_PER_CAMPAIGN;
pub use catalog::lease::MAX_HEARTBEAT_LEASES;
pub use objects::{ARTIFACT_FOLDER, ArtifactOptions, DEFAULT_MAX_ARTIFACT_BYTES, Objects};
pub use page::MAX_PAGE;
pub use postgres::look::{PostgresLook, look_at_postgres};
pub use postgres::open::PostgresOptions;
pub use scheduling::{MAX_CLAIMED, MAX_STEPS_PER_ADVANCE};
pub use sqlite::open::OpenOptions;
pub use store::SqlStore;
