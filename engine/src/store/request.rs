//! Requests: open model calls that an outside agent answers.
//!
//! A request is stored before its step begins to wait. It is leased to one agent at a time and answered once.

use async_trait::async_trait;
use nightshift_protocol::api::{LeasedRequest, RequestDetail, RequestQuestion, RequestView};
use nightshift_protocol::id::{CampaignId, RequestId, RunId, StepId};
use nightshift_protocol::model_call::FellBack;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::time::TimestampMs;

use super::{PageRequest, Placed, StoreError};

/// A request to open, unless the same one exists.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRequest {
    /// Id for a new request.
    pub id: RequestId,
    /// The run.
    pub run: RunId,
    /// The step that waits for the answer.
    pub step: StepId,
    /// The step's key within the run.
    pub step_key: String,
    /// Turn within the step, from 1.
    pub turn: u32,
    /// blake3 over model, parameters and rendered prompt.
    pub request_hash: String,
    /// The agent role that asks.
    pub role: AgentRole,
    /// `external/NAME`.
    pub model: String,
    /// The question.
    pub question: RequestQuestion,
    /// Models that were asked before and could not answer, in order.
    pub fell_back: Vec<FellBack>,
    /// Time of the request.
    pub at: TimestampMs,
    /// End of the time for an answer. The store limits it to the end of the campaign's wall time.
    pub deadline: TimestampMs,
}

/// The state of a request, for its step.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestStanding {
    /// Its id.
    pub id: RequestId,
    /// Creation time.
    pub created_at: TimestampMs,
    /// End of the time for an answer.
    pub deadline: TimestampMs,
    /// Models that were asked before and could not answer, in order.
    pub fell_back: Vec<FellBack>,
    /// The answer with the time of its arrival.
    pub answer: Option<(RequestAnswer, TimestampMs)>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestAnswer {
    /// The text.
    pub text: String,
    /// Input tokens, if the agent reported them.
    pub input_tokens: Option<u64>,
    /// Output tokens, if the agent reported them.
    pub output_tokens: Option<u64>,
    /// The model that the agent reported.
    pub model: Option<String>,
}

/// A filter for requests. Empty fields do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestFilter {
    /// Only requests of this campaign.
    pub campaign: Option<CampaignId>,
    /// Only requests of this run.
    pub run: Option<RunId>,
    /// Only requests of these roles.
    pub roles: Vec<AgentRole>,
    /// Only requests to this model.
    pub model: Option<String>,
}

/// A lease to grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLease {
    /// Its token.
    pub token: String,
    /// Name of the agent.
    pub holder: String,
    /// End of the lease.
    pub until: TimestampMs,
}

/// Requests.
///
/// Refusals (`Refused`):
///
/// - `request.lease_lost`: another lease replaced this one.
/// - `request.answered`: another answer was accepted.
/// - `request.expired`: the deadline has passed.
/// - `request.cancelled`: the step or the run ended.
/// - `request.busy`: the step is being carried out. The same call succeeds a moment later.
#[async_trait]
pub trait RequestStore: Send + Sync {
    /// Opens a request, or finds the same request of the same step.
    async fn open_request(&self, new: NewRequest) -> Result<RequestStanding, StoreError>;

    /// Finds the request of a step with this hash.
    async fn find_request(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<RequestStanding>, StoreError>;

    /// Leases the oldest request that waits for an agent, of a running run and of a step that is not being carried out.
    async fn lease_request(
        &self,
        filter: RequestFilter,
        lease: RequestLease,
        at: TimestampMs,
    ) -> Result<Option<LeasedRequest>, StoreError>;

    /// Accepts an answer under a lease, and continues the step in the same transaction.
    ///
    /// An expired lease may answer until another lease replaces it. Returns whether the same answer was accepted
    /// before.
    async fn answer_request(
        &self,
        id: &RequestId,
        lease: &str,
        answer: RequestAnswer,
        at: TimestampMs,
    ) -> Result<bool, StoreError>;

    /// Moves the end of a lease, at most to the deadline.
    async fn extend_request(
        &self,
        id: &RequestId,
        lease: &str,
        until: TimestampMs,
        at: TimestampMs,
    ) -> Result<RequestView, StoreError>;

    /// Releases a request to other agents. Repeating it changes nothing.
    async fn release_request(&self, id: &RequestId, lease: &str, at: TimestampMs) -> Result<(), StoreError>;

    /// Lists requests, newest first. With `waiting`, only those that wait for an answer.
    async fn list_requests(
        &self,
        filter: &RequestFilter,
        waiting: bool,
        page: &PageRequest,
        at: TimestampMs,
    ) -> Result<Vec<Placed<RequestView>>, StoreError>;

    /// Loads one request.
    async fn load_request(&self, id: &RequestId, at: TimestampMs) -> Result<RequestDetail, StoreError>;
}
