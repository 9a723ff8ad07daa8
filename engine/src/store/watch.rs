//! The part of the port for those who watch: what changed, without what is large.

use async_trait::async_trait;
use nightshift_protocol::api::{DeviceReading, RunCounts};
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::{CampaignRecord, StoreError};

/// A run, as far as somebody who watches many of them needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunMark {
    /// The run.
    pub run: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// Where it stands.
    pub status: RunStatus,
    /// Counts every decision and every change of status.
    pub revision: u64,
    /// The last event of its log.
    pub last_seq: u64,
    /// What lists show.
    pub digest: Value,
    /// Signals that it waits for.
    pub awaits: Vec<String>,
    /// Code of what it failed with.
    pub failure: Option<String>,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
}

/// Which state of a run somebody saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStamp {
    /// The run.
    pub run: RunId,
    /// As in [`RunMark::revision`].
    pub revision: u64,
    /// As in [`RunMark::last_seq`].
    pub last_seq: u64,
}

/// A campaign, as far as lists of all of them need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignMark {
    /// The campaign.
    pub campaign: CampaignId,
    /// Its runs by status.
    pub runs: RunCounts,
}

/// What a campaign has come to, as far as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignSum {
    /// The campaign.
    pub campaign: CampaignId,
    /// When its last run ended, of those that did.
    pub last_ended_at: Option<TimestampMs>,
    /// What its model calls cost, in millionths of a US dollar.
    pub cost_microusd: u64,
}

/// How the devices of a worker are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingRecord {
    /// The worker.
    pub worker: WorkerId,
    /// When it told so.
    pub at: TimestampMs,
    /// Its devices, one by one.
    pub devices: Vec<DeviceReading>,
}

/// Reading what changed.
#[async_trait]
pub trait WatchStore: Send + Sync {
    /// These runs as they are now; those that do not exist are left out.
    async fn run_marks(&self, runs: &[RunId]) -> Result<Vec<RunMark>, StoreError>;

    /// Runs that are not over, newest first, and the newest runs of all, at most `limit` of each; a run may be there
    /// twice.
    async fn run_stamps(&self, limit: u32) -> Result<Vec<RunStamp>, StoreError>;

    /// Every campaign, newest first.
    async fn campaign_marks(&self) -> Result<Vec<CampaignMark>, StoreError>;

    /// These campaigns, newest first; those that do not exist are left out.
    async fn campaigns_of(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignRecord>, StoreError>;

    /// What these campaigns have come to; those that do not exist are left out.
    async fn campaign_sums(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignSum>, StoreError>;

    /// Notes how devices are. An earlier reading takes the place of no later one; unknown workers are left out.
    async fn put_readings(&self, readings: Vec<ReadingRecord>) -> Result<(), StoreError>;

    /// How the devices of all workers are that told so.
    async fn list_readings(&self) -> Result<Vec<ReadingRecord>, StoreError>;
}
