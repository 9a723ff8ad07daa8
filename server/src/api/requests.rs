//! Requests: open model calls that outside agents take, answer, extend and release.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use nightshift_engine::store::{RequestAnswer, RequestFilter, RequestLease, StoreError};
use nightshift_optimizer::agent::examine_answer;
use nightshift_protocol::api::{
    AnswerRequest, DEFAULT_REQUEST_LEASE_S, ExtendRequest, MAX_ANSWER_BYTES, MAX_HOLDER_CHARS, MAX_REQUEST_LEASE_S,
    MIN_REQUEST_LEASE_S, NextRequest, Page, ReleaseRequest, RequestAnswered, RequestDetail, RequestView,
};
use nightshift_protocol::id::{CampaignId, RequestId, RunId};
use serde::Deserialize;

use crate::actor::Actor;
use crate::api::list::page_request;
use crate::api::long_poll::hold;
use crate::api::team;
use crate::call_limits::CallLimits;
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath, Params, PathId};
use crate::secret::new_request_lease;
use crate::shared::Shared;

/// Maximum length of a model name, in characters.
const MAX_MODEL_CHARS: usize = 256;
/// Maximum number of tokens that an agent may report for an answer.
const MAX_STATED_TOKENS: u64 = 1_000_000_000;
/// Maximum number of tries to accept an answer while its step is being carried out, and the time between two tries.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

impl PathId for RequestId {
    const NOT_FOUND: &'static str = "request.not_found";
}

/// The query of `GET /requests`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestsQuery {
    campaign: Option<CampaignId>,
    run: Option<RunId>,
    /// Whether to include requests that do not wait for an answer any more.
    #[serde(default)]
    all: bool,
    limit: Option<u32>,
    before: Option<String>,
}

/// Lists requests, newest first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<RequestsQuery>,
) -> Result<Json<Page<RequestView>>, ApiFailure> {
    let page = page_request(query.limit, query.before)?;
    let filter = RequestFilter { campaign: query.campaign, run: query.run, ..RequestFilter::default() };
    let rows = shared.store.requests.list_requests(&filter, !query.all, &page, shared.clock.now()).await?;
    Ok(Json(team::page(&page, rows)))
}

/// Returns one request with its question.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RequestId>,
) -> Result<Json<RequestDetail>, ApiFailure> {
    Ok(Json(shared.store.requests.load_request(&id, shared.clock.now()).await?))
}

/// Leases the oldest matching request, or waits for one: 204 when there is none.
pub(crate) async fn next(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    State(limits): State<Arc<CallLimits>>,
    actor: Actor,
    Body(wish): Body<NextRequest>,
) -> Result<Response, ApiFailure> {
    let lease_s = lease_seconds(wish.lease_s.unwrap_or(DEFAULT_REQUEST_LEASE_S))?;
    if wish.holder.chars().count() > MAX_HOLDER_CHARS {
        let message = format!("`holder` has at most {MAX_HOLDER_CHARS} characters");
        return Err(ApiFailure::bad("request.invalid", message));
    }
    if let Some(run) = &wish.run {
        shared.store.runs.run_status(run).await?;
    }
    if let Some(campaign) = &wish.campaign {
        shared.store.campaigns.load_campaign(campaign).await?;
    }
    let holder = if wish.holder.trim().is_empty() { actor.name().to_owned() } else { wish.holder };
    let filter = RequestFilter { campaign: wish.campaign, run: wish.run, roles: wish.roles, model: wish.model };
    let leased = hold(&shared, &limits, &driving.requests, wish.wait_ms, async || {
        let at = shared.clock.now();
        let until = at.plus_ms(u64::from(lease_s) * 1_000);
        let lease = RequestLease { token: new_request_lease(&*shared.random), holder: holder.clone(), until };
        let leased = shared.store.requests.lease_request(filter.clone(), lease, at).await;
        shared.store_health.note_error(&leased);
        let leased = leased?;
        Ok((leased.is_some(), leased))
    })
    .await?;
    let Some(leased) = leased else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    tracing::info!(request.id = %leased.request.id, run.id = %leased.request.run, holder, "a request was leased");
    Ok(Json(leased).into_response())
}

/// Accepts an answer under a lease. Repeating the same answer succeeds.
pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RequestId>,
    body: Result<Body<AnswerRequest>, ApiFailure>,
) -> Result<Json<RequestAnswered>, ApiFailure> {
    let Body(wish) = body.map_err(named_size)?;
    if wish.model.as_ref().is_some_and(|model| model.chars().count() > MAX_MODEL_CHARS) {
        let message = format!("`model` has at most {MAX_MODEL_CHARS} characters");
        return Err(ApiFailure::bad("request.invalid", message));
    }
    if [wish.input_tokens, wish.output_tokens].into_iter().flatten().any(|tokens| tokens > MAX_STATED_TOKENS) {
        return Err(ApiFailure::bad("request.invalid", format!("at most {MAX_STATED_TOKENS} tokens are accepted")));
    }
    let store = &shared.store.requests;
    let asked = store.load_request(&id, shared.clock.now()).await?;
    // An answer that was accepted before is not validated again.
    if asked.request.state.is_waiting() {
        examine_answer(&asked.question, &wish.text).map_err(|problem| {
            let status = match problem.code() {
                "answer.too_large" => StatusCode::PAYLOAD_TOO_LARGE,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            ApiFailure::new(
                status,
                problem.code(),
                format!("{problem}. The request is still open: correct the answer and send it again"),
            )
        })?;
    }
    let given = RequestAnswer {
        text: wish.text,
        input_tokens: wish.input_tokens,
        output_tokens: wish.output_tokens,
        model: wish.model,
    };
    let mut tries = 0;
    let repeated = loop {
        let accepted = store.answer_request(&id, &wish.lease, given.clone(), shared.clock.now()).await;
        shared.store_health.note_error(&accepted);
        tries += 1;
        match accepted {
            Err(StoreError::Refused { code: "request.busy", .. }) if tries < BUSY_TRIES => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            other => break other?,
        }
    };
    tracing::info!(request.id = %id, run.id = %asked.request.run, repeated, "a request was answered");
    Ok(Json(RequestAnswered { id, repeated }))
}

/// Moves the end of a lease.
pub(crate) async fn extend(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RequestId>,
    Body(wish): Body<ExtendRequest>,
) -> Result<Json<RequestView>, ApiFailure> {
    let at = shared.clock.now();
    let until = at.plus_ms(u64::from(lease_seconds(wish.lease_s)?) * 1_000);
    let extended = shared.store.requests.extend_request(&id, &wish.lease, until, at).await;
    shared.store_health.note_error(&extended);
    Ok(Json(extended?))
}

/// Releases a request to other agents.
pub(crate) async fn release(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<RequestId>,
    Body(wish): Body<ReleaseRequest>,
) -> Result<StatusCode, ApiFailure> {
    let released = shared.store.requests.release_request(&id, &wish.lease, shared.clock.now()).await;
    shared.store_health.note_error(&released);
    released?;
    driving.requests.notify_waiters();
    Ok(StatusCode::NO_CONTENT)
}

fn lease_seconds(lease_s: u32) -> Result<u32, ApiFailure> {
    if (MIN_REQUEST_LEASE_S..=MAX_REQUEST_LEASE_S).contains(&lease_s) {
        return Ok(lease_s);
    }
    let message = format!("`lease_s` is from {MIN_REQUEST_LEASE_S} to {MAX_REQUEST_LEASE_S}");
    Err(ApiFailure::bad("request.invalid", message))
}

/// Names the error for a body beyond the limit of all calls: the answer is too large.
fn named_size(failure: ApiFailure) -> ApiFailure {
    if failure.status() != StatusCode::PAYLOAD_TOO_LARGE {
        return failure;
    }
    let message = format!(
        "an answer has at most {MAX_ANSWER_BYTES} bytes. The request is still open: correct the answer and send it again"
    );
    ApiFailure::new(StatusCode::PAYLOAD_TOO_LARGE, "answer.too_large", message)
}
