//! Pages of lists, and gauges for operators.

use nightshift_protocol::api::RunCounts;
use nightshift_protocol::time::TimestampMs;

/// Gauges for operators, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreGauges {
    /// Ready steps by route.
    pub ready: Vec<(String, u64)>,
    /// Scheduling time of the oldest ready step, by route.
    pub oldest_ready: Vec<(String, TimestampMs)>,
    /// Devices that one step uses exclusively.
    pub devices_alone: u64,
    /// Devices that one or more steps share.
    pub devices_shared: u64,
    /// Steps that wait for a timer.
    pub timers: u64,
    /// Steps that wait for a budget.
    pub blocked: u64,
    /// Number of leases.
    pub leases: u64,
    /// Start of the oldest lease, by route.
    pub oldest_lease: Vec<(String, TimestampMs)>,
    /// Runs by status.
    pub runs: RunCounts,
}

/// A page of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Maximum number of rows.
    pub limit: u32,
    /// Only rows that follow this one in the list's order: older rows, or later tasks of one campaign.
    pub before: Option<String>,
}
