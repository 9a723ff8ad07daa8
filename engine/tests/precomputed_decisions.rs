//! Tests of precomputed decisions: they give the same log and state as decisions after the report, whatever comes in
//! between.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/memory.rs"]
mod memory;
#[path = "support/memory_port.rs"]
mod memory_port;
#[path = "support/toy.rs"]
mod toy;

#[path = "precomputed_decisions/guards.rs"]
mod guards;
#[path = "precomputed_decisions/histories.rs"]
mod histories;
#[path = "precomputed_decisions/parts.rs"]
mod parts;
#[path = "precomputed_decisions/site.rs"]
mod site;
