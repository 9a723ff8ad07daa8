//! The ports to the database, one for each noun.
//!
//! Every method is one atomic transaction, acknowledged after it is durable. Every method that changes a step re-checks
//! its status and the lease epoch: a late report changes nothing. The same transaction decides by [`crate::admission`]
//! whether a wanted step waits for a machine, a time or a budget.

mod archive;
mod artifact;
mod budget;
mod campaign;
mod change;
mod creation;
mod database;
mod device;
mod error;
mod handover;
mod knowledge;
mod lease;
mod model_call;
mod ownership;
mod queue;
mod read;
mod request;
mod retention;
mod run;
mod run_control;
mod server;
mod session;
mod step;
mod team;
mod token;
mod watch;
mod webhook;
mod worker;

use std::sync::Arc;

pub use self::archive::{ArchiveStore, ArtifactNames, CampaignArchive, CollectedRows, RowSink};
pub use self::artifact::{ArtifactProgress, ArtifactStore, MovedArtifacts, store_unpacked};
pub use self::budget::{BudgetStore, Reservation};
pub use self::campaign::{CampaignRecord, CampaignStore, CreatedCampaign, NewCampaign, NewRun};
pub use self::change::{Change, ChangeStore, Changed, ClaimRequest, DeviceLane, Report, Reported};
pub use self::creation::{Creation, CreationStore, Once};
pub use self::database::{Database, StoreGauges};
pub use self::device::{DeviceStore, QuarantineRecord};
pub use self::error::StoreError;
pub use self::handover::{FinishedHandover, HandoverRecord, HandoverStore, NewHandover, ReturnedHandover};
pub use self::knowledge::{
    BoundFrom, KnowledgeStore, LessonQuery, LessonRecord, MAX_SEARCH_WORDS, NoteRecord, RetrievalRecord, ScoreRecord,
};
pub use self::lease::{ExpiredLease, HeartbeatOutcome, LeaseStore};
pub use self::model_call::{ModelCallRecord, ModelCallStore};
pub use self::ownership::{Ownership, OwnershipStore};
pub use self::queue::QueueStore;
pub use self::read::PageRequest;
pub use self::request::{NewRequest, RequestAnswer, RequestFilter, RequestLease, RequestStanding, RequestStore};
pub use self::retention::{Pruned, RetentionStore};
pub use self::run::{Advance, Advanced, CreatedRun, OwnerFence, RunRecord, RunStore};
pub use self::run_control::RunControlStore;
pub use self::server::{ChangedRun, Notice, Pulse, ServerRecord, ServerStore};
pub use self::session::{SessionHolder, SessionLimits, SessionRecord, SessionStore};
pub use self::step::{StepRecord, TryEnd};
pub use self::team::{Among, Placed, ShareRecord, TeamStore};
pub use self::token::{TokenRecord, TokenStore};
pub use self::watch::{CampaignMark, CampaignSum, ReadingRecord, RunMark, RunStamp, WatchStore, WorkerMark};
pub use self::webhook::{DeliveryEnd, NewDelivery, WebhookRecord, WebhookStore};
pub use self::worker::{WorkerRecord, WorkerStore};

/// All ports of one database. Code that needs a few of them takes only those.
///
/// To add something to a port, for example metrics or faults, replace its field and leave the others as they are:
/// `Store { changes: observed, ..store }`.
#[derive(Clone)]
pub struct Store {
    /// Whole campaigns, to take them away and to bring them in.
    pub archives: Arc<dyn ArchiveStore>,
    /// Artifacts.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Budgets of campaigns.
    pub budgets: Arc<dyn BudgetStore>,
    /// Campaigns and their settings.
    pub campaigns: Arc<dyn CampaignStore>,
    /// Claims, reports and decisions, committed together.
    pub changes: Arc<dyn ChangeStore>,
    /// Records that are created at most once per idempotency key.
    pub creations: Arc<dyn CreationStore>,
    /// The database as a whole.
    pub database: Arc<dyn Database>,
    /// Quarantined devices.
    pub devices: Arc<dyn DeviceStore>,
    /// Hand-overs of campaigns to other machines.
    pub handovers: Arc<dyn HandoverStore>,
    /// Notes, lessons and later scores.
    pub knowledge: Arc<dyn KnowledgeStore>,
    /// Leased steps.
    pub leases: Arc<dyn LeaseStore>,
    /// Answered model calls.
    pub model_calls: Arc<dyn ModelCallStore>,
    /// Which server decides for which run.
    pub ownership: Arc<dyn OwnershipStore>,
    /// Ready steps, and steps that wait for a time.
    pub queue: Arc<dyn QueueStore>,
    /// Model calls that outside agents answer.
    pub requests: Arc<dyn RequestStore>,
    /// Deleting what is no longer needed.
    pub retention: Arc<dyn RetentionStore>,
    /// What people ask of a run.
    pub run_control: Arc<dyn RunControlStore>,
    /// Runs with their logs and steps.
    pub runs: Arc<dyn RunStore>,
    /// Server leases.
    pub servers: Arc<dyn ServerStore>,
    /// Browser sessions.
    pub sessions: Arc<dyn SessionStore>,
    /// Notes, tags, pins, views and links.
    pub team: Arc<dyn TeamStore>,
    /// Tokens of the API.
    pub tokens: Arc<dyn TokenStore>,
    /// What changed, without large fields.
    pub watch: Arc<dyn WatchStore>,
    /// Webhooks and their deliveries.
    pub webhooks: Arc<dyn WebhookStore>,
    /// Workers.
    pub workers: Arc<dyn WorkerStore>,
}
