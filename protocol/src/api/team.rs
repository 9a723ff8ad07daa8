//! Data that people add to campaigns, runs and attempts: notes, tags, pins, saved views and links for readers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{CampaignId, RemarkId, RunId, SavedViewId, ShareId};
use crate::time::TimestampMs;

/// Longest note, in bytes.
pub const MAX_REMARK_BYTES: usize = 64 * 1024;
/// Longest tag, in characters.
pub const MAX_TAG_CHARS: usize = 50;
/// Most tags of one target.
pub const MAX_TAGS: usize = 50;
/// Longest label of a pin or a link, longest name of a view, in characters.
pub const MAX_LABEL_CHARS: usize = 200;
/// Longest query of a view, in bytes.
pub const MAX_VIEW_QUERY_BYTES: usize = 4_096;

/// A campaign, a run, or an attempt of a run: `cmp_…`, `run_…`, `run_…/3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A campaign.
    Campaign(CampaignId),
    /// A run.
    Run(RunId),
    /// An attempt, by its number.
    Attempt(RunId, u32),
}

/// The error for a text that names no campaign, run or attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no target: expected a campaign (`cmp_…`), a run (`run_…`) or an attempt (`run_…/3`)")]
pub struct InvalidTarget(String);

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let invalid = || InvalidTarget(text.chars().take(100).collect());
        if let Some((run, number)) = text.split_once('/') {
            let run = run.parse().map_err(|_| invalid())?;
            let number = number.parse().ok().filter(|number: &u32| *number > 0).ok_or_else(invalid)?;
            return Ok(Self::Attempt(run, number));
        }
        if let Ok(campaign) = text.parse() {
            return Ok(Self::Campaign(campaign));
        }
        text.parse().map(Self::Run).map_err(|_| invalid())
    }
}

impl TryFrom<String> for Target {
    type Error = InvalidTarget;

    fn try_from(text: String) -> Result<Self, InvalidTarget> {
        text.parse()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Campaign(campaign) => campaign.fmt(f),
            Self::Run(run) => run.fmt(f),
            Self::Attempt(run, number) => write!(f, "{run}/{number}"),
        }
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

/// A note. Its text is Markdown as it was written: a client that shows it has to sanitize it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Remark {
    /// Id.
    pub id: RemarkId,
    /// What it is about.
    pub target: Target,
    /// Markdown.
    pub text: String,
    /// Name of the author's token.
    pub author: String,
    /// When it was written.
    pub created_at: TimestampMs,
    /// When it was changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<TimestampMs>,
}

/// `POST /notes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewRemark {
    /// What it is about.
    pub target: Target,
    /// Markdown, at most [`MAX_REMARK_BYTES`].
    pub text: String,
}

/// `PUT /notes/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditRemark {
    /// Markdown, at most [`MAX_REMARK_BYTES`].
    pub text: String,
}

/// A tag of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tag {
    /// The target that has it.
    pub target: Target,
    /// The tag.
    pub tag: String,
    /// Name of the token that added it.
    pub author: String,
    /// When.
    pub at: TimestampMs,
}

/// A tag with its number of targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TagCount {
    /// The tag.
    pub tag: String,
    /// How many targets have it.
    pub targets: u64,
}

/// `POST /tags`: adds and removes tags. Repeating a change has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeTags {
    /// The target whose tags change.
    pub target: Target,
    /// Tags to add.
    #[serde(default)]
    pub add: Vec<String>,
    /// Tags to remove.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A campaign, run or attempt that the team pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pin {
    /// What is pinned.
    pub target: Target,
    /// Its campaign.
    pub campaign: CampaignId,
    /// Purpose of the pin.
    pub label: String,
    /// Name of the token that pinned it.
    pub author: String,
    /// When.
    pub at: TimestampMs,
}

/// `POST /pins`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SetPin {
    /// The target to pin or unpin.
    pub target: Target,
    /// Whether it is pinned from now on.
    pub pinned: bool,
    /// Purpose of the pin.
    #[serde(default)]
    pub label: String,
}

/// A page with its filters, under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SavedView {
    /// Id.
    pub id: SavedViewId,
    /// Name for people.
    pub name: String,
    /// The page, for example `attempts`.
    pub page: String,
    /// The query of its address, without the question mark.
    pub query: String,
    /// Name of the owner's token.
    pub owner: String,
    /// Whether others see it, too.
    pub shared: bool,
    /// When it was made.
    pub created_at: TimestampMs,
    /// When it was changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<TimestampMs>,
}

/// `POST /views`, `PUT /views/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutSavedView {
    /// Name for people.
    pub name: String,
    /// The page: 1 to 64 lower-case letters, digits, `-`, `_` and `/`.
    pub page: String,
    /// The query of its address, without the question mark.
    #[serde(default)]
    pub query: String,
    /// Whether others see it, too.
    #[serde(default)]
    pub shared: bool,
}

/// A public link to one campaign or one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Share {
    /// Id.
    pub id: ShareId,
    /// The campaign or run that it gives access to.
    pub target: Target,
    /// Who it is for.
    pub label: String,
    /// Name of the creator's token.
    pub author: String,
    /// When it was made.
    pub created_at: TimestampMs,
    /// When it ends by itself.
    pub expires_at: TimestampMs,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<TimestampMs>,
}

/// `POST /shares`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateShare {
    /// A campaign or a run.
    pub target: Target,
    /// Who it is for.
    #[serde(default)]
    pub label: String,
    /// How long it is valid, in milliseconds.
    pub valid_for_ms: u64,
}

/// Answer to `POST /shares`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareCreated {
    /// The link as lists show it.
    pub share: Share,
    /// Secret of the link, a token for reading. Only this answer contains it.
    pub secret: String,
}

impl fmt::Debug for ShareCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareCreated").field("share", &self.share).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_survives_the_way_through_text() {
        let digits = "0123456789abcdef0123456789abcdef";
        for text in [format!("cmp_{digits}"), format!("run_{digits}"), format!("run_{digits}/12")] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(text));
        }
        for text in ["", "run_1", &format!("cmp_{digits}/1"), &format!("run_{digits}/0"), &format!("run_{digits}/x")] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
