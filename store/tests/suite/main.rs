//! Tests of the store through its port on both databases: files and servers, races, faults, and whole runs through
//! driver and sweeper.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

mod answers;
mod archive;
mod artifacts;
mod attempts;
mod bench;
mod boards;
mod budgets;
mod campaigns;
mod commands;
mod content;
mod control;
mod devices;
mod differential;
mod driving;
mod fairness;
mod faulty_objects;
mod fleet;
mod handovers;
mod knowledge;
mod leases;
mod objects;
mod opening_postgres;
mod opening_sqlite;
mod outages;
mod ownership;
mod place;
mod quarantine;
mod races;
mod raw;
mod reopening;
mod requests;
mod runs;
mod s3;
mod search;
mod signals;
mod team;
mod toy;
mod violations;
mod webhooks;
mod windows;
