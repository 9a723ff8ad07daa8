//! Decisions that are made before the report is committed: the same log and the same state as decisions that are made
//! afterwards, whatever comes in between.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/memory.rs"]
mod memory;
#[path = "support/memory_port.rs"]
mod memory_port;
#[path = "support/toy.rs"]
mod toy;

#[path = "foresight/guards.rs"]
mod guards;
#[path = "foresight/histories.rs"]
mod histories;
#[path = "foresight/parts.rs"]
mod parts;
#[path = "foresight/site.rs"]
mod site;
