//! How lists are asked for, and numbers for operators.

use nightshift_protocol::api::RunCounts;
use nightshift_protocol::time::TimestampMs;

/// Numbers for operators, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreGauges {
    /// Ready steps by route.
    pub ready: Vec<(String, u64)>,
    /// When the oldest of the ready steps was scheduled, by route.
    pub oldest_ready: Vec<(String, TimestampMs)>,
    /// Devices that a step has alone.
    pub devices_alone: u64,
    /// Devices that one or more steps share.
    pub devices_shared: u64,
    /// Steps that wait for a timer.
    pub timers: u64,
    /// Steps that wait for a budget.
    pub blocked: u64,
    /// Leases.
    pub leases: u64,
    /// When the oldest lease was given, by route.
    pub oldest_lease: Vec<(String, TimestampMs)>,
    /// Runs by status.
    pub runs: RunCounts,
}

/// A page of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Rows.
    pub limit: u32,
    /// Only rows that follow this one in the list's order: older ones, or later tasks of one campaign.
    pub before: Option<String>,
}
