//! Server leases, and the notices that servers exchange about commits.

use async_trait::async_trait;
use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// A lease of a server process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRecord {
    /// Id of the lease.
    pub id: ServerId,
    /// Name for people.
    pub name: String,
    /// Its version, for people.
    pub version: String,
    /// The format in which it writes the states of runs, and the highest one that it reads.
    pub state_format: u32,
    /// Where it listens, for people.
    pub address: String,
    /// Start of the lease.
    pub started_at: TimestampMs,
    /// Expiry of the lease, unless a heartbeat extends it. The server owns nothing afterwards.
    pub expires_at: TimestampMs,
}

/// Outcome of a heartbeat: one query extends the lease and returns where work is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four separate answers of one query, each a place to look at")]
pub struct Pulse {
    /// Whether the lease still holds. Otherwise the server was declared dead and has to register again.
    pub alive: bool,
    /// Whether runs wait for this server: its own, those of no server, or those of a dead server.
    pub runs_to_drive: bool,
    /// Whether steps are ready.
    pub ready: bool,
    /// True if the sweeper has work: an expired lease, a dead server, or a blocked step whose budget has room.
    pub expired: bool,
    /// When the next timer is due.
    pub next_timer: Option<TimestampMs>,
    /// The database's clock, as [`Database::database_now`](super::Database::database_now) returns it.
    pub database_now: Option<TimestampMs>,
}

/// A run whose log or status changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChangedRun {
    /// The run.
    pub id: RunId,
    /// The server that owned it at the commit and decides what follows. None if it had no owner, or if the owner is not
    /// known: then any server may look.
    pub owner: Option<ServerId>,
    /// True if a decision may be due. False after a decision that folded the whole log.
    pub to_drive: bool,
}

impl ChangedRun {
    /// A change after which a decision may be due.
    #[must_use]
    pub fn undecided(id: RunId, owner: Option<ServerId>) -> Self {
        Self { id, owner, to_drive: true }
    }
}

/// A change in the store that a waiting task may be interested in. It is a hint: readers check the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The log or the status of a run changed.
    RunChanged(ChangedRun),
    /// Steps of this route became ready.
    Ready(String),
    /// A timer was set that is due at this time.
    TimerSet(TimestampMs),
    /// Something changed; the details were lost.
    Unknown,
}

/// Server leases.
#[async_trait]
pub trait ServerStore: Send + Sync {
    /// Registers a server lease.
    ///
    /// `sole` says that this process has locked the database, so no other server can be alive. All earlier leases end
    /// at once then.
    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError>;

    /// Sends a heartbeat: keeps a server alive until `expires_at` and returns where work is due.
    async fn pulse(&self, server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Result<Pulse, StoreError>;

    /// Ends a server lease in an orderly way: its runs belong to no server.
    async fn retire_server(&self, server: &ServerId, at: TimestampMs) -> Result<(), StoreError>;

    /// Frees the leases of embedded workers of dead servers and deletes those servers. Returns the number of freed
    /// leases.
    ///
    /// The lost tries do not count.
    async fn reap_servers(&self, at: TimestampMs) -> Result<u64, StoreError>;

    /// Lists the known server leases, newest first.
    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError>;
}
