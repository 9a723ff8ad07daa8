//! Live events, `GET /live`. Each event contains the current state of a run, a campaign or a worker, as lists show it.
//! A client that missed one is up to date again with the next one about the same thing.

use serde::{Deserialize, Serialize};

use super::{RunCounts, RunDigest};
use crate::id::{CampaignId, RunId, WorkerId};
use crate::run::RunStatus;
use crate::time::TimestampMs;

/// Header with which a client that comes back names the last event it has.
pub const LAST_EVENT_ID_HEADER: &str = "last-event-id";
/// Interval of heartbeats on an idle stream, in milliseconds.
pub const LIVE_HEARTBEAT_MS: u64 = 15_000;

/// An event of a live stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LiveEvent {
    /// The stream begins. What is read after this is not older than the events that follow.
    Opened {
        /// Whether it goes on right after the event that the client named.
        resumed: bool,
        /// Interval of heartbeats on an idle stream, in milliseconds.
        heartbeat_ms: u64,
    },
    /// Events may be missing: read again what is shown. Events go on after this one.
    Resync {
        /// Why.
        reason: ResyncReason,
    },
    /// A run changed, or was created.
    RunChanged(Box<RunChange>),
    /// The runs of a campaign changed their status, or what it may use did.
    CampaignChanged(CampaignChange),
    /// A worker was registered or removed, or its leased steps changed.
    WorkerChanged(WorkerChange),
    /// A heartbeat: nothing changed.
    Heartbeat {
        /// Server clock.
        at: TimestampMs,
    },
    /// The server stops. Come back, to it or to another one, with the id of the last event.
    Closing,
}

impl LiveEvent {
    /// The name of the event in the stream.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Resync { .. } => "resync",
            Self::RunChanged(_) => "run_changed",
            Self::CampaignChanged(_) => "campaign_changed",
            Self::WorkerChanged(_) => "worker_changed",
            Self::Heartbeat { .. } => "heartbeat",
            Self::Closing => "closing",
        }
    }
}

/// Why events may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResyncReason {
    /// The event that the client named is of another server, or of this one before it was started anew.
    OtherServer,
    /// What came after it is not kept any more: the client was away, or read, for too long.
    TooOld,
}

/// A run, as far as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunChange {
    /// The run.
    pub run: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// The last event of its log.
    pub seq: u64,
    /// Where it stands.
    pub status: RunStatus,
    /// What lists show, with what it does or waits for.
    pub digest: RunDigest,
    /// Number of its latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Gates that a person has to open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<String>,
}

/// A campaign, as far as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignChange {
    /// The campaign.
    pub campaign: CampaignId,
    /// Its runs by status.
    pub runs: RunCounts,
}

/// A worker, as far as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerChange {
    /// The worker.
    pub worker: WorkerId,
    /// Name for people.
    pub name: String,
    /// Number of steps that it holds.
    pub leases: u64,
    /// Whether it is being drained.
    pub draining: bool,
    /// Whether the server has not heard from it for so long that it has most likely ended.
    pub silent: bool,
    /// Whether it was removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// An event with its id, which [`LAST_EVENT_ID_HEADER`] takes.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveMessage {
    /// Where it stands in the stream of its server; none for one that is not to be named.
    pub id: Option<String>,
    /// The event.
    pub event: LiveEvent,
}
