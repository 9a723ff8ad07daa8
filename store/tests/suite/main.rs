//! The store as its users see it: the port, the files, and whole runs through driver and sweeper.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod campaigns;
mod content;
mod control;
mod driving;
mod leases;
mod opening;
mod random;
mod runs;
mod toy;
mod violations;
