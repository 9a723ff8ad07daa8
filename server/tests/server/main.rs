//! Tests of the server over HTTP, with the real store in a temporary folder, a small workflow and scripted agents.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod agents;
mod archive;
mod artifacts;
mod attempt_export;
mod attempt_index;
mod attempts;
mod backup;
mod bulk;
mod campaigns;
mod control;
mod dispatch;
mod doomed;
mod faults;
mod handovers;
mod idempotency;
mod limits;
mod lists;
mod live;
mod loops;
mod manual_clock;
mod metrics;
mod openapi;
mod problems;
mod prune;
mod quarantine;
mod replicas;
mod requests;
mod runs;
mod session;
mod setup;
mod tables;
mod team;
mod tokens;
mod toy;
mod traces;
mod webhooks;
mod workers;
