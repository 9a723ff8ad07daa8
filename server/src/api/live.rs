//! `GET /live`: a stream of changes.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use nightshift_engine::store::StoreError;
use nightshift_protocol::api::LAST_EVENT_ID_HEADER;
use nightshift_protocol::id::{CampaignId, RunId};
use serde::Deserialize;

use crate::access::Access;
use crate::access::Standing;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::extract::Params;
use crate::live::Live;
use crate::live::{Filter, MAX_STREAMS};
use crate::live_events;
use crate::shared::Shared;

/// Header that tells a reverse proxy to forward all data immediately.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Maximum pause between events that a client may request.
const MAX_PAUSE_MS: u64 = 60_000;

/// The query of `GET /live`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveQuery {
    campaign: Option<CampaignId>,
    run: Option<RunId>,
    after: Option<String>,
    pause_ms: Option<u64>,
}

/// Opens a stream of events. The header names the last event of a reconnecting client; the query names it for a new
/// client.
pub(crate) async fn open(
    State(shared): State<Arc<Shared>>,
    State(access): State<Arc<Access>>,
    State(live): State<Arc<Live>>,
    caller: Option<Extension<Caller>>,
    Params(query): Params<LiveQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiFailure> {
    if let Some(campaign) = &query.campaign {
        shared.store.campaigns.load_campaign(campaign).await?;
    }
    if let Some(run) = &query.run
        && shared.store.watch.run_marks(std::slice::from_ref(run)).await?.is_empty()
    {
        return Err(StoreError::NotFound { noun: "run", id: run.to_string() }.into());
    }
    let pause_ms = query.pause_ms.unwrap_or(0);
    if pause_ms > MAX_PAUSE_MS {
        return Err(ApiFailure::bad("request.invalid_query", format!("`pause_ms` is at most {MAX_PAUSE_MS}")));
    }
    let filter = Filter { campaign: query.campaign, run: query.run };
    let named = headers.get(LAST_EVENT_ID_HEADER).and_then(|value| value.to_str().ok());
    // The stream ends when the caller's permission to read ends.
    let caller = caller.map(|Extension(caller)| caller);
    let ends_at = caller.as_ref().and_then(|caller| caller.ends_at);
    let standing = Standing::of(access, caller.as_ref(), &headers);
    let valid_for = ends_at.map(|end| Duration::from_millis(end.since_ms(shared.clock.now())));
    let after = named.or(query.after.as_deref());
    let pause = Duration::from_millis(pause_ms);
    let stream = live_events::stream(shared, live, filter, after, pause, valid_for, standing).ok_or_else(too_many)?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform")),
        (ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    Ok((StatusCode::OK, headers, Body::from_stream(stream)).into_response())
}

fn too_many() -> ApiFailure {
    ApiFailure::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "server.too_many_streams",
        format!(
            "this server already holds {MAX_STREAMS} live streams: close some pages, or read now and then instead of \
             listening"
        ),
    )
}
