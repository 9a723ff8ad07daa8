//! Requests: open model calls that an agent outside of Nightshift answers, `/requests`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{CampaignId, RequestId, RunId};
use crate::models::AgentRole;
use crate::task::CandidateForm;
use crate::time::TimestampMs;

/// Longest answer, in bytes of text.
pub const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// Longest name of an agent that holds a request, in characters.
pub const MAX_HOLDER_CHARS: usize = 80;
/// Shortest lease of a request, in seconds.
pub const MIN_REQUEST_LEASE_S: u32 = 5;
/// Longest lease of a request, in seconds.
pub const MAX_REQUEST_LEASE_S: u32 = 86_400;
/// Lease of a request when the agent asks for no other, in seconds.
pub const DEFAULT_REQUEST_LEASE_S: u32 = 900;

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// It waits for an agent.
    Open,
    /// An agent holds a lease on it.
    Leased,
    /// It was answered.
    Answered,
    /// Its deadline passed without an answer.
    Expired,
    /// Its step or its run ended without an answer.
    Cancelled,
}

impl RequestState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Open, Self::Leased, Self::Answered, Self::Expired, Self::Cancelled];

    /// The printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Leased => "leased",
            Self::Answered => "answered",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether an answer is still wanted.
    #[must_use]
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Open | Self::Leased)
    }
}

/// A request as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestView {
    /// Id.
    pub id: RequestId,
    /// The campaign.
    pub campaign: CampaignId,
    /// The run that waits.
    pub run: RunId,
    /// Key of the step that waits.
    pub step_key: String,
    /// Turn within the step: a later turn says what was wrong with the answer to an earlier one.
    pub turn: u32,
    /// The agent role that asks.
    pub role: AgentRole,
    /// The model: `external/NAME`.
    pub model: String,
    /// Where it stands.
    pub state: RequestState,
    /// When it was opened.
    pub created_at: TimestampMs,
    /// An answer after this moment is refused.
    pub deadline: TimestampMs,
    /// Name of the agent that holds the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// When the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_until: Option<TimestampMs>,
    /// When it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<TimestampMs>,
    /// The model that the agent says it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_with: Option<String>,
}

/// An earlier turn of the same conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EarlierTurn {
    /// What was answered.
    pub assistant: String,
    /// The reply to it: usually what to correct.
    pub user: String,
}

/// The question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestQuestion {
    /// The role and the rules to follow.
    pub system: String,
    /// The first message.
    pub user: String,
    /// Earlier turns, oldest first; the last one ends with what is asked now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierTurn>,
    /// JSON schema that the answer has to satisfy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Form of the program that the answer has to contain: whole in one fenced code block, or as edits where there is one to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<CandidateForm>,
    /// For a turn of an agent session, in place of `form`: the answer is one call of a tool, with or without a program of this form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_form: Option<CandidateForm>,
    /// Limit of the answer, in tokens, as models are given it. Not enforced for requests.
    pub max_output_tokens: u32,
}

impl RequestQuestion {
    /// The question as one Markdown text: rules, messages in their order, and what the answer has to contain.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut parts = vec![format!("# System\n\n{}", self.system), format!("# User\n\n{}", self.user)];
        for turn in &self.earlier {
            parts.push(format!("# Your earlier answer\n\n{}", turn.assistant));
            parts.push(format!("# User\n\n{}", turn.user));
        }
        let wanted = match (&self.schema, self.form) {
            _ if self.turn_form.is_some() => {
                Some("Exactly one call of a tool, in the form that the rules name.".to_owned())
            }
            (Some(schema), _) => {
                Some(format!("Exactly one JSON object that satisfies this schema:\n\n```json\n{schema:#}\n```"))
            }
            (None, Some(form)) => {
                let program = if form == CandidateForm::Torch { "Python program" } else { "program" };
                Some(format!(
                    "The {program}, in one of the forms that the rules name: whole in one fenced code block, or as edits."
                ))
            }
            (None, None) => None,
        };
        parts.extend(wanted.map(|wanted| format!("# What your answer has to contain\n\n{wanted}")));
        parts.join("\n\n")
    }
}

/// Answer to `GET /requests/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestDetail {
    /// As in a list.
    pub request: RequestView,
    /// The question.
    pub question: RequestQuestion,
    /// The answer, once it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// `POST /requests/next`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NextRequest {
    /// Only requests of this campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<CampaignId>,
    /// Only requests of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Only requests of these roles; of all without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<AgentRole>,
    /// Only requests to this model, for example `external/night-shift`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Name of the agent, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
    /// Length of the lease in seconds, from [`MIN_REQUEST_LEASE_S`] to [`MAX_REQUEST_LEASE_S`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_s: Option<u32>,
    /// How long to wait for a request, in milliseconds; the server waits 25 seconds at most.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Answer to `POST /requests/next`: a request with the lease on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeasedRequest {
    /// Token of the lease. Calls that answer, extend or release the request send it; no list contains it.
    pub lease: String,
    /// As in a list.
    pub request: RequestView,
    /// The question.
    pub question: RequestQuestion,
}

/// `POST /requests/{id}/answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AnswerRequest {
    /// Token of the lease.
    pub lease: String,
    /// The answer: at most [`MAX_ANSWER_BYTES`].
    pub text: String,
    /// Tokens that the agent read for it, when it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens that the agent wrote for it, when it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// The model that the agent used, when it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Answer to `POST /requests/{id}/answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestAnswered {
    /// The request.
    pub id: RequestId,
    /// Whether the same answer had been accepted before.
    pub repeated: bool,
}

/// `POST /requests/{id}/release`: gives the request back to other agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Token of the lease.
    pub lease: String,
}

/// `POST /requests/{id}/extend`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest {
    /// Token of the lease.
    pub lease: String,
    /// Seconds from now at which the lease ends, from [`MIN_REQUEST_LEASE_S`] to [`MAX_REQUEST_LEASE_S`].
    pub lease_s: u32,
}
