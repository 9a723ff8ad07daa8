//! Lives of servers, and what they hear of each other's commits.

use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::time::TimestampMs;

/// A life of a server process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRecord {
    /// Id of this life.
    pub id: ServerId,
    /// Name for people.
    pub name: String,
    /// Its version, for people.
    pub version: String,
    /// The format in which it writes the states of runs, and the highest one that it reads.
    pub state_format: u32,
    /// Where it listens, for people.
    pub address: String,
    /// When it began.
    pub started_at: TimestampMs,
    /// It owns nothing any more after this moment, unless its pulse moves it.
    pub expires_at: TimestampMs,
}

/// What a server's pulse found: one query that keeps it alive and says where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four separate answers of one query, each a place to look at")]
pub struct Pulse {
    /// Whether it is still alive; else it was declared dead and has to register as a new life.
    pub alive: bool,
    /// Runs that it should drive: its own, or those of nobody or of a dead server.
    pub runs_to_drive: bool,
    /// Steps are ready.
    pub ready: bool,
    /// Leases have run out, or servers are dead.
    pub expired: bool,
    /// When the next timer is due.
    pub next_timer: Option<TimestampMs>,
}

/// What happened in the store that somebody may wait for. A hint, never the truth.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The log or the status of a run changed.
    RunChanged(RunId),
    /// Steps of this route became ready.
    Ready(String),
    /// A timer was set.
    TimerSet,
    /// Something changed, it is not known what.
    Unknown,
}
