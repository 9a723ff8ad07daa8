//! The part of the port about requests: open model calls that an agent outside of Nightshift answers. A request is stored
//! before its step begins to wait, is leased to one agent at a time, and is answered once.

use async_trait::async_trait;
use nightshift_protocol::api::{LeasedRequest, RequestDetail, RequestQuestion, RequestView};
use nightshift_protocol::id::{CampaignId, RequestId, RunId, StepId};
use nightshift_protocol::model_call::FellBack;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::time::TimestampMs;

use super::{PageRequest, Placed, StoreError};

/// A request to be opened, if the same one is not there yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRequest {
    /// Its id, if it is new.
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
    /// When.
    pub at: TimestampMs,
    /// Until when an answer is accepted. The store moves it forward to the end of the campaign's wall time.
    pub deadline: TimestampMs,
}

/// What a step knows of its request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestStanding {
    /// Its id.
    pub id: RequestId,
    /// When it was opened.
    pub created_at: TimestampMs,
    /// Until when an answer is accepted.
    pub deadline: TimestampMs,
    /// Models that were asked before and could not answer, in order.
    pub fell_back: Vec<FellBack>,
    /// The answer, and when it came.
    pub answer: Option<(RequestAnswer, TimestampMs)>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestAnswer {
    /// The text.
    pub text: String,
    /// Tokens of the question, when the agent said so.
    pub input_tokens: Option<u64>,
    /// Tokens of the answer, when the agent said so.
    pub output_tokens: Option<u64>,
    /// The model that the agent says it used.
    pub model: Option<String>,
}

/// Which requests an agent takes, or a list shows. Empty fields do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestFilter {
    /// Of this campaign.
    pub campaign: Option<CampaignId>,
    /// Of this run.
    pub run: Option<RunId>,
    /// Of one of these roles.
    pub roles: Vec<AgentRole>,
    /// To this model.
    pub model: Option<String>,
}

/// A lease to be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLease {
    /// Its token.
    pub token: String,
    /// Name of the agent.
    pub holder: String,
    /// When it ends.
    pub until: TimestampMs,
}

/// Requests.
///
/// Refusals (`Refused`): `request.lease_lost` when another lease took the place of this one, `request.answered` when
/// another answer was accepted, `request.expired` after the deadline, `request.cancelled` when the step or the run ended,
/// `request.busy` while the step is being carried out: then the same call succeeds a moment later.
#[async_trait]
pub trait RequestStore: Send + Sync {
    /// Opens a request, or finds the one that asked the same for the same step.
    async fn open_request(&self, new: NewRequest) -> Result<RequestStanding, StoreError>;

    /// The request of a step that asked this, if there is one.
    async fn find_request(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<RequestStanding>, StoreError>;

    /// Leases the oldest request that waits for an agent, whose run is running and whose step is not being carried out.
    async fn lease_request(
        &self,
        filter: RequestFilter,
        lease: RequestLease,
        at: TimestampMs,
    ) -> Result<Option<LeasedRequest>, StoreError>;

    /// Accepts an answer under a lease, and has the step carried on in the same transaction. A lease that ran out may
    /// answer until another one takes its place. Gives whether the same answer had been accepted before.
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

    /// Gives a request back to other agents. Giving it back again is fine.
    async fn release_request(&self, id: &RequestId, lease: &str, at: TimestampMs) -> Result<(), StoreError>;

    /// Requests, newest first; with `waiting` only those that wait for an answer.
    async fn list_requests(
        &self,
        filter: &RequestFilter,
        waiting: bool,
        page: &PageRequest,
        at: TimestampMs,
    ) -> Result<Vec<Placed<RequestView>>, StoreError>;

    /// One request.
    async fn load_request(&self, id: &RequestId, at: TimestampMs) -> Result<RequestDetail, StoreError>;
}
