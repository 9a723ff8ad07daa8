//! Summaries for observers: what changed, without large fields.

use async_trait::async_trait;
use nightshift_protocol::api::{DeviceReading, RunCounts};
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::{CampaignRecord, StoreError};

/// The summary of a run, for an observer of many runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunMark {
    /// The run.
    pub run: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// The status.
    pub status: RunStatus,
    /// Counts every decision and every change of status.
    pub revision: u64,
    /// The last event of its log.
    pub last_seq: u64,
    /// The few facts that lists show.
    pub digest: Value,
    /// Signals that it waits for.
    pub awaits: Vec<String>,
    /// Code of its failure.
    pub failure: Option<String>,
    /// End time.
    pub finished_at: Option<TimestampMs>,
}

/// The version of a run that an observer has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStamp {
    /// The run.
    pub run: RunId,
    /// As in [`RunMark::revision`].
    pub revision: u64,
    /// As in [`RunMark::last_seq`].
    pub last_seq: u64,
}

/// The summary of a campaign, for lists of all campaigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignMark {
    /// The campaign.
    pub campaign: CampaignId,
    /// Its runs by status.
    pub runs: RunCounts,
}

/// The totals of a campaign, for lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignSum {
    /// The campaign.
    pub campaign: CampaignId,
    /// Latest end of its finished runs.
    pub last_ended_at: Option<TimestampMs>,
    /// Cost of its model calls, in millionths of a US dollar.
    pub cost_microusd: u64,
}

/// A reading of the devices of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingRecord {
    /// The worker.
    pub worker: WorkerId,
    /// Time of the reading.
    pub at: TimestampMs,
    /// Its devices, one by one.
    pub devices: Vec<DeviceReading>,
}

/// The summary of a worker, without its offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerMark {
    /// The worker.
    pub worker: WorkerId,
    /// Name for people.
    pub name: String,
    /// Number of its leases.
    pub leases: u64,
    /// True if the worker takes no new steps and is about to end.
    pub draining: bool,
    /// Time of the last contact.
    pub last_seen_at: TimestampMs,
}

/// Reads for observers.
#[async_trait]
pub trait WatchStore: Send + Sync {
    /// Returns the summaries of these runs. Missing runs are skipped.
    async fn run_marks(&self, runs: &[RunId]) -> Result<Vec<RunMark>, StoreError>;

    /// Returns unfinished runs, newest first, and the newest runs of all, at most `limit` of each. A run may occur
    /// twice.
    async fn run_stamps(&self, limit: u32) -> Result<Vec<RunStamp>, StoreError>;

    /// Returns every campaign, newest first.
    async fn campaign_marks(&self) -> Result<Vec<CampaignMark>, StoreError>;

    /// Returns these campaigns, newest first. Missing campaigns are skipped.
    async fn campaigns_of(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignRecord>, StoreError>;

    /// Returns the totals of these campaigns. Missing campaigns are skipped.
    async fn campaign_sums(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignSum>, StoreError>;

    /// Returns the summaries of workers, most recently seen first.
    async fn worker_marks(&self, limit: u32) -> Result<Vec<WorkerMark>, StoreError>;

    /// Stores device readings. An older reading does not replace a newer one. Unknown workers are skipped.
    async fn put_readings(&self, readings: Vec<ReadingRecord>) -> Result<(), StoreError>;

    /// Returns the latest device readings of all workers.
    async fn list_readings(&self) -> Result<Vec<ReadingRecord>, StoreError>;
}
