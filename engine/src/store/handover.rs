//! Hand-overs. A campaign is checked out to another machine, and its results are returned
//! once.

use async_trait::async_trait;
use nightshift_protocol::api::{HandoverDetail, HandoverState};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, HandoverId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::StoreError;

/// A hand-over to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHandover {
    /// Its id.
    pub id: HandoverId,
    /// The campaign.
    pub campaign: CampaignId,
    /// The key of the keyed hash that authenticates its files.
    pub key: String,
    /// Name of the caller.
    pub by: String,
    /// Time of the request.
    pub at: TimestampMs,
}

/// A hand-over as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverRecord {
    /// Id.
    pub id: HandoverId,
    /// The campaign.
    pub campaign: CampaignId,
    /// State of the hand-over.
    pub state: HandoverState,
    /// The key of the keyed hash that authenticates its files.
    pub key: String,
    /// Runs that were running and continue on the other machine.
    pub runs: Vec<RunId>,
    /// Digest of the returned file.
    pub digest: Option<String>,
    /// Name of the caller that began it.
    pub by: String,
    /// When it began.
    pub created_at: TimestampMs,
    /// When it was finished or cancelled.
    pub ended_at: Option<TimestampMs>,
}

impl HandoverRecord {
    /// Returns the public view of the hand-over.
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

    /// Returns whether the results with this digest were merged before. Refuses results that the current state does not
    /// accept.
    pub fn takes(&self, digest: &str) -> Result<bool, StoreError> {
        let id = &self.id;
        let (code, why) = match self.state {
            HandoverState::Out => return Ok(false),
            HandoverState::Finished if self.digest.as_deref() == Some(digest) => return Ok(true),
            HandoverState::Leaving => {
                ("handover.not_out", format!("{id} was not checked out: its file was never complete"))
            }
            HandoverState::Cancelled => (
                "handover.cancelled",
                format!(
                    "{id} was cancelled: the campaign continued here, and results of that hand-over are not accepted any more"
                ),
            ),
            HandoverState::Finished => (
                "handover.finished",
                format!(
                    "another file of {id} was returned before, and the first one counts. Hand the campaign over again"
                ),
            ),
        };
        Err(StoreError::Refused { code, message: format!("{why}. Nothing was changed") })
    }
}

/// Returned results.
#[derive(Debug, Clone, PartialEq)]
pub struct ReturnedHandover {
    /// The hand-over.
    pub id: HandoverId,
    /// Digest of the file.
    pub digest: String,
    /// Rows of the campaign, as an export gives them. Budget rows hold the amounts used elsewhere. Unchanged rows may
    /// be missing.
    pub rows: Vec<Value>,
    /// Artifacts in the file, and artifacts that it omits because they came with the campaign.
    pub artifacts: Vec<ArtifactHash>,
    /// Name of the caller that returned them.
    pub by: String,
    /// Time of the return.
    pub at: TimestampMs,
}

/// Outcome of merging results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedHandover {
    /// The hand-over.
    pub handover: HandoverRecord,
    /// Whether the same file was returned before. Nothing was changed then.
    pub repeated: bool,
    /// The runs of the campaign.
    pub runs: Vec<(RunId, RunStatus)>,
}

/// Hand-overs.
///
/// While one is open (`leaving` or `out`), runs of its campaign refuse control, retries and signals with
/// `campaign.handed_over`. While it is `out`, its runs do not change: no step is in flight, and no server decides for
/// them.
#[async_trait]
pub trait HandoverStore: Send + Sync {
    /// Pauses the running runs of a campaign and begins its hand-over, or finds the one that is `leaving` already.
    ///
    /// Refusals: `campaign.handed_over` when it is out, `handover.nothing_left` when all runs have ended,
    /// `handover.cancelling` while a run is being cancelled.
    async fn begin_handover(&self, new: NewHandover) -> Result<HandoverRecord, StoreError>;

    /// Checks the campaign out if no step is in flight. Returns the hand-over with its state.
    ///
    /// With `by_force`, steps in flight are released first, and their tries do not count.
    async fn check_out(&self, id: &HandoverId, by_force: bool, at: TimestampMs) -> Result<HandoverRecord, StoreError>;

    /// Loads one hand-over.
    async fn load_handover(&self, id: &HandoverId) -> Result<HandoverRecord, StoreError>;

    /// Lists the open hand-overs, optionally of one campaign.
    async fn open_handovers(&self, campaign: Option<&CampaignId>) -> Result<Vec<HandoverRecord>, StoreError>;

    /// Cancels a hand-over without results. The runs that were running continue here. Refuses `handover.none` when the
    /// campaign is not handed over.
    async fn cancel_handover(
        &self,
        campaign: &CampaignId,
        by: &str,
        at: TimestampMs,
    ) -> Result<HandoverRecord, StoreError>;

    /// Merges results and ends the hand-over, in one transaction. Unfinished runs that were running continue here.
    ///
    /// Refusals: `handover.cancelled`; `handover.finished` when another file was returned before; `handover.not_out`;
    /// `handover.diverged` when the history does not continue the stored one; `handover.artifacts_missing` when an
    /// artifact of the results is not stored.
    async fn finish_handover(&self, returned: ReturnedHandover) -> Result<FinishedHandover, StoreError>;
}
