//! The part of the port about hand-overs: a campaign is checked out to another machine, and its results come back once.

use async_trait::async_trait;
use nightshift_protocol::api::{HandoverDetail, HandoverState};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, HandoverId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::StoreError;

/// A hand-over to be begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHandover {
    /// Its id.
    pub id: HandoverId,
    /// The campaign.
    pub campaign: CampaignId,
    /// The key that its files are sealed with.
    pub key: String,
    /// Who asked for it.
    pub by: String,
    /// When.
    pub at: TimestampMs,
}

/// A hand-over as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverRecord {
    /// Id.
    pub id: HandoverId,
    /// The campaign.
    pub campaign: CampaignId,
    /// Where it stands.
    pub state: HandoverState,
    /// The key that its files are sealed with.
    pub key: String,
    /// Runs that were running, and go on elsewhere.
    pub runs: Vec<RunId>,
    /// Digest of the file that was brought back.
    pub digest: Option<String>,
    /// Who asked for it.
    pub by: String,
    /// When it began.
    pub created_at: TimestampMs,
    /// When it was finished or cancelled.
    pub ended_at: Option<TimestampMs>,
}

impl HandoverRecord {
    /// What people may see of it.
    #[must_use]
    pub fn detail(&self) -> HandoverDetail {
        HandoverDetail {
            id: self.id.clone(),
            campaign: self.campaign.clone(),
            state: self.state,
            by: self.by.clone(),
            created_at: self.created_at,
            ended_at: self.ended_at,
        }
    }

    /// Whether the results with this digest were taken in before. Refuses those that are not taken any more or not yet.
    pub fn takes(&self, digest: &str) -> Result<bool, StoreError> {
        let id = &self.id;
        let (code, why) = match self.state {
            HandoverState::Out => return Ok(false),
            HandoverState::Finished if self.digest.as_deref() == Some(digest) => return Ok(true),
            HandoverState::Leaving => {
                ("handover.not_out", format!("{id} was not checked out: its file was never whole"))
            }
            HandoverState::Cancelled => (
                "handover.cancelled",
                format!(
                    "{id} was cancelled: the campaign went on here, and results of that hand-over are not taken any more"
                ),
            ),
            HandoverState::Finished => (
                "handover.finished",
                format!(
                    "another file of {id} was brought back before: the first one counts. Hand the campaign over again"
                ),
            ),
        };
        Err(StoreError::Refused { code, message: format!("{why}. Nothing was changed") })
    }
}

/// Results that come back.
#[derive(Debug, Clone, PartialEq)]
pub struct ReturnedHandover {
    /// The hand-over.
    pub id: HandoverId,
    /// Digest of the file.
    pub digest: String,
    /// Rows of the campaign, as an export gives them; of a budget, what was used up elsewhere. Rows that did not change there may
    /// be missing.
    pub rows: Vec<Value>,
    /// Artifacts that the file holds, and those that it leaves out because they came with the campaign.
    pub artifacts: Vec<ArtifactHash>,
    /// Who brought them.
    pub by: String,
    /// When.
    pub at: TimestampMs,
}

/// The outcome of taking results in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedHandover {
    /// The hand-over.
    pub handover: HandoverRecord,
    /// Whether the same file had been brought back before; then nothing was changed.
    pub repeated: bool,
    /// The runs of the campaign.
    pub runs: Vec<(RunId, RunStatus)>,
}

/// Hand-overs.
///
/// While one is open (`leaving` or `out`), runs of its campaign are refused control, retries and signals with
/// `campaign.handed_over`. While it is `out`, nothing of them changes: no step is in flight, and no server decides for them.
#[async_trait]
pub trait HandoverStore: Send + Sync {
    /// Pauses the running runs of a campaign and begins its hand-over; finds the one that is `leaving` already. Refusals:
    /// `campaign.handed_over` when it is out, `handover.nothing_left` when all runs are over, `handover.cancelling` while a
    /// run is being cancelled.
    async fn begin_handover(&self, new: NewHandover) -> Result<HandoverRecord, StoreError>;

    /// Checks the campaign out if no step is in flight; gives where the hand-over stands. With `by_force`, steps in flight
    /// are given back first, and their tries do not count.
    async fn check_out(&self, id: &HandoverId, by_force: bool, at: TimestampMs) -> Result<HandoverRecord, StoreError>;

    /// One hand-over.
    async fn load_handover(&self, id: &HandoverId) -> Result<HandoverRecord, StoreError>;

    /// Hand-overs that are open; of one campaign.
    async fn open_handovers(&self, campaign: Option<&CampaignId>) -> Result<Vec<HandoverRecord>, StoreError>;

    /// Takes a campaign back without results: the runs that were running go on here. `handover.none` when it is not handed
    /// over.
    async fn cancel_handover(
        &self,
        campaign: &CampaignId,
        by: &str,
        at: TimestampMs,
    ) -> Result<HandoverRecord, StoreError>;

    /// Takes results in and ends the hand-over, in one transaction; the runs that were running and are not over go on here.
    /// Refusals: `handover.cancelled`, `handover.finished` when another file was brought back before, `handover.not_out`,
    /// `handover.diverged` when the history does not continue the one that is stored here, `handover.artifacts_missing` when
    /// an artifact of the results is not stored here.
    async fn finish_handover(&self, returned: ReturnedHandover) -> Result<FinishedHandover, StoreError>;
}
