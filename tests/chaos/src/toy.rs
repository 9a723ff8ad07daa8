//! What runs consist of: a few trivial steps of every kind of need, whose results depend on one another, so that a lost
//! or repeated result shows in the sum at the end.
//!
//! A run's name says all of it: `toy-17-fg` is number 17, whose second step of the fan fails for good at its first try
//! (`f`), and which waits at a gate before its end (`g`).

mod agents;
mod log;
mod values;
mod work;
mod workflow;

pub(crate) use agents::{CALL_TOKENS, RESERVED_TOKENS, ToyAgents};
pub(crate) use log::{Line, Log, What, now_us, read_folder};
pub(crate) use values::{Name, expected_reply, expected_sum, keys, output};
pub(crate) use work::{ToyWork, offers};
pub(crate) use workflow::{ToyWorkflow, view};

/// Device time that is set aside for a step on a device, in milliseconds.
pub(crate) const DEVICE_MS: u64 = 40;
