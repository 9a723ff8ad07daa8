//! Steps that wait for a worker or for a time.

use async_trait::async_trait;
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// Steps that no worker has leased: ready ones, and ones that wait for a time.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// Returns the routes of ready steps, the route with the lowest rank first.
    async fn ready_routes(&self, limit: u32) -> Result<Vec<String>, StoreError>;

    /// Admits steps again whose waiting time is over, and ready steps that could not end before their campaign's window
    /// closes. Admits blocked steps again whose budget has room.
    ///
    /// Returns how many became ready, and when the next timer is due.
    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError>;
}
