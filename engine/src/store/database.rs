//! The database as a whole: gauges, clock and notices.

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::time::TimestampMs;

use super::{Notice, StoreError};

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

/// The database as a whole.
#[async_trait]
pub trait Database: Send + Sync {
    /// Returns gauges for operators.
    async fn gauges(&self) -> Result<StoreGauges, StoreError>;

    /// Returns the database's clock where several machines share the database. Returns none where one process has it
    /// alone and uses the machine's clock.
    async fn database_now(&self) -> Result<Option<TimestampMs>, StoreError>;

    /// Returns a stream of notices about commits of this process and of others on the same database.
    ///
    /// Notices are sent after the commit, outside of any transaction, in batches. A receiver that is too slow gets
    /// [`Notice::Unknown`] in place of dropped notices.
    fn notices(&self) -> BoxStream<'static, Notice>;

    /// Returns the kind of database: `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;
}
