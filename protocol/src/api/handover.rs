//! Hand-overs: campaigns that are checked out to a machine without a network.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::id::{CampaignId, HandoverId, RunId};
use crate::run::RunStatus;
use crate::time::TimestampMs;

/// Longest time that steps in flight are waited for, in seconds.
pub const MAX_HANDOVER_WAIT_S: u32 = 3_000;

/// Where a hand-over stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HandoverState {
    /// The runs are paused, and steps in flight are coming to their end.
    Leaving,
    /// The campaign is at rest here, and its file may be carried out elsewhere.
    Out,
    /// Its results were brought back.
    Finished,
    /// It was taken back without results.
    Cancelled,
}

impl HandoverState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Leaving, Self::Out, Self::Finished, Self::Cancelled];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leaving => "leaving",
            Self::Out => "out",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Returns whether the campaign is handed over to another machine.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Leaving | Self::Out)
    }
}

/// A hand-over, without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandoverDetail {
    /// Id.
    pub id: HandoverId,
    /// The campaign.
    pub campaign: CampaignId,
    /// Where it stands.
    pub state: HandoverState,
    /// Who began it.
    pub by: String,
    /// When it began.
    pub created_at: TimestampMs,
    /// When it was finished or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<TimestampMs>,
}

/// `POST /campaigns/{id}/handover`: pauses the runs, and checks the campaign out once no step is in flight.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BeginHandover {
    /// Seconds for steps in flight to end; those that have not ended are given back, and begin again elsewhere.
    #[serde(default)]
    pub wait_s: u32,
}

/// `POST /campaigns/{id}/handover/file`: the file of the hand-over that has the campaign.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HandoverFile {
    /// Artifacts that the other machine has already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<ArtifactHash>,
}

/// Answer to `POST /handovers/finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandoverFinished {
    /// The hand-over.
    pub handover: HandoverDetail,
    /// Whether this file had been brought back before: then nothing was changed.
    pub repeated: bool,
    /// The runs of the campaign, and where they stand now.
    pub runs: Vec<(RunId, RunStatus)>,
}
