//! Rare operations and reads: one file per noun or verb, with plain SQL.
//!
//! Operations that change steps use the hot path's working set, so there is only one implementation of readiness, ends
//! of tries, and accounting.

pub(crate) mod archive;
pub(crate) mod archive_tables;
pub(crate) mod archive_team;
pub(crate) mod artifact;
pub(crate) mod blocked;
pub(crate) mod budget;
pub(crate) mod campaign;
pub(crate) mod control;
pub(crate) mod creation;
pub(crate) mod event;
pub(crate) mod gauge;
pub(crate) mod handover;
pub(crate) mod idempotency;
pub(crate) mod ids;
pub(crate) mod lease;
pub(crate) mod lesson;
pub(crate) mod model_call;
pub(crate) mod note;
pub(crate) mod ownership;
pub(crate) mod piece;
pub(crate) mod prune;
pub(crate) mod quarantine;
pub(crate) mod reading;
pub(crate) mod request;
pub(crate) mod retrieval;
pub(crate) mod run;
pub(crate) mod run_list;
pub(crate) mod schedule;
pub(crate) mod score;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod signal;
pub(crate) mod step;
pub(crate) mod step_runs;
pub(crate) mod team;
pub(crate) mod timer;
pub(crate) mod token;
pub(crate) mod transition;
pub(crate) mod watch;
pub(crate) mod webhook;
pub(crate) mod worker;

pub(crate) use crate::page::MAX_PAGE;
pub(crate) use crate::public_id::public_id;

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
mod tests;
