//! The only SQL: the engine's [`Store`](nightshift_engine::store::Store) port over sqlx and sea-query, on SQLite and on
//! Postgres.
//!
//! It never decides: what follows a failure, which step comes next and when a lease runs out is the engine's to say.
//! Here it is committed, or refused because somebody else was first.

mod admit;
mod batch;
mod connection;
mod failure;
mod json;
mod memory;
mod notices;
mod number;
mod postgres;
mod row;
mod sqlite;
mod transaction;
mod value;
mod writer;
