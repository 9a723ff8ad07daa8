//! The life of a run and of a step, as total functions.

use serde::{Deserialize, Serialize};

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Steps are scheduled or running.
    Running,
    /// Nothing new is leased until someone resumes it.
    Paused,
    /// Cancelled while steps were running: they are being stopped.
    Cancelling,
    /// Ended by a decision of its strategy.
    Completed,
    /// Ended because a step cannot succeed.
    Failed,
    /// Ended by a person.
    Cancelled,
}

/// What moves a run from one status to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunTransition {
    /// Stop leasing.
    Pause,
    /// Lease again.
    Resume,
    /// End it; running steps are stopped first.
    Cancel,
    /// The last running step of a cancelled run is gone.
    CancelFinished,
    /// The strategy ended it.
    Complete,
    /// A step failed for good.
    Fail,
    /// Begin again from a failed step.
    Retry,
}

/// A transition that the status does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {} cannot {}", from.as_str(), transition.verb())]
pub struct IllegalTransition {
    /// The status.
    pub from: RunStatus,
    /// The transition that was asked for.
    pub transition: RunTransition,
}

impl RunTransition {
    fn verb(self) -> &'static str {
        match self {
            Self::Pause => "be paused",
            Self::Resume => "be resumed",
            Self::Cancel => "be cancelled",
            Self::CancelFinished => "finish cancelling",
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Retry => "be retried",
        }
    }
}

impl RunStatus {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Paused, Self::Cancelling, Self::Completed, Self::Failed, Self::Cancelled];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether nothing more happens by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The status after a transition. Repeating a request that already took effect is allowed.
    pub fn next(self, transition: RunTransition) -> Result<Self, IllegalTransition> {
        use RunTransition as T;
        match (self, transition) {
            (Self::Running | Self::Paused, T::Pause) => Ok(Self::Paused),
            (Self::Running | Self::Paused, T::Resume) | (Self::Failed, T::Retry) => Ok(Self::Running),
            (Self::Running | Self::Paused | Self::Cancelling, T::Cancel) => Ok(Self::Cancelling),
            (Self::Cancelling, T::CancelFinished) => Ok(Self::Cancelled),
            (Self::Running | Self::Paused, T::Complete) => Ok(Self::Completed),
            (Self::Running | Self::Paused, T::Fail) => Ok(Self::Failed),
            (from, transition) => Err(IllegalTransition { from, transition }),
        }
    }
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Known, and ready or waiting for a timer or for its run to be resumed.
    Scheduled,
    /// A worker carries it out.
    Leased,
    /// Its result is committed.
    Completed,
    /// It cannot succeed.
    Failed,
    /// Its result is no longer needed.
    Cancelled,
}

impl StepStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Scheduled, Self::Leased, Self::Completed, Self::Failed, Self::Cancelled];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Leased => "leased",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether nothing more happens by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_status_is_left_only_by_a_retry_of_a_failure() {
        use RunTransition as T;
        let all = [T::Pause, T::Resume, T::Cancel, T::CancelFinished, T::Complete, T::Fail, T::Retry];
        for status in RunStatus::ALL.into_iter().filter(|s| s.is_final()) {
            for transition in all {
                let allowed = status.next(transition).is_ok();
                assert_eq!(allowed, status == RunStatus::Failed && transition == T::Retry, "{status:?} {transition:?}");
            }
        }
    }

    #[test]
    fn every_status_is_found_by_its_name() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::parse(status.as_str()), Some(status));
        }
        for status in StepStatus::ALL {
            assert_eq!(StepStatus::parse(status.as_str()), Some(status));
        }
    }
}
