//! The routes under `/api/v1`, with their guards and limits.

mod archive;
mod archive_spool;
mod artifact_upload;
mod artifacts;
mod attempt_export;
mod attempts;
mod bulk;
mod campaigns;
mod create_campaign;
mod devices;
mod etag;
mod examine_limits;
mod examine_models;
mod handover_admission;
mod handovers;
mod health;
mod idempotency;
mod ids;
mod limits;
mod list;
mod live;
mod long_poll;
mod metrics;
mod models;
mod observe_request;
mod openapi;
mod prune;
mod refused_file;
mod requests;
mod retrievals;
mod run_control;
mod runs;
mod scores;
mod search;
mod servers;
mod session;
mod sessions;
mod tables;
mod tasks;
mod team;
mod tokens;
mod unpack;
mod webhooks;
mod workers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{any, delete, get, post, put};
use tower_http::trace::TraceLayer;

use crate::access::{self, Access};
use crate::address::PREFIX;
use crate::app::App;
use crate::error::{ApiFailure, Failed};
use crate::shared::Shared;

pub use archive::{MAX_ARCHIVE_BYTES, MAX_ARCHIVE_TIMEOUT};
pub use bulk::MAX_BULK_RUNS;
pub use create_campaign::MAX_TASKS;
pub use ids::MAX_ID_MATCHES;
use observe_request::observe_request;
pub use openapi::openapi_json;
pub use runs::MAX_EVENTS_PER_PAGE;

/// Calls that only return known state. Their failures are not logged.
const REPEATS: [&str; 2] = ["/api/v1/health", "/api/v1/ready"];
/// Maximum size of a JSON body, in bytes.
pub const MAX_JSON_BYTES: usize = 8 * 1024 * 1024;
/// Maximum size of the body of an answer to a request, in bytes. JSON escapes may make the text six times as long.
const MAX_ANSWER_BODY_BYTES: usize = 32 * 1024 * 1024;
/// Maximum size of the body of a call without authentication, in bytes.
const MAX_SIGN_IN_BYTES: usize = 16 * 1024;
/// Timeout of a call, except for long polls and artifacts.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of an artifact transfer.
pub const MAX_ARTIFACT_TIMEOUT: Duration = Duration::from_mins(5);

/// Timeout of a long poll, including its body.
const LONG_POLL_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns the router of this server. `listens` is the address of the listener.
pub(crate) fn router(app: &App, listens: SocketAddr, extra: Router) -> Router {
    let access = &app.access;
    let reads = from_fn_with_state(access.clone(), access::reads);
    let operates = from_fn_with_state(access.clone(), access::operates);
    let works = from_fn_with_state(access.clone(), access::works);
    let administers = from_fn_with_state(access.clone(), access::administers);

    let quick = Router::new()
        .merge(Router::new().route("/health", get(health::show)).route("/ready", get(health::ready)))
        .merge(Router::new().route("/openapi.json", get(openapi::show)))
        .merge(table_routes(access))
        .merge(team_routes(access))
        .merge(webhook_routes(access))
        .merge(request_routes(access))
        .merge(session_routes(access))
        .merge(
            Router::new()
                .route("/campaigns", get(campaigns::list))
                .route("/campaigns/{id}", get(campaigns::show))
                .route("/campaigns/{id}/results", get(campaigns::results))
                .route("/runs", get(runs::list))
                .route("/runs/{id}", get(runs::show))
                .route("/runs/{id}/steps", get(runs::steps))
                .route("/runs/{id}/scores", get(scores::list))
                .route("/runs/{id}/retrievals", get(retrievals::list))
                .route("/attempts", get(attempts::list))
                .route("/attempts/points", get(attempts::points))
                .route("/attempts/at/{run}/{number}", get(attempts::at))
                .route("/attempts/at/{run}/{number}/model-new", get(attempt_export::model_new))
                .route("/attempts/at/{run}/{number}/project", get(attempt_export::project))
                .route("/tasks", get(tasks::list))
                .route("/models", get(models::list))
                .route("/search", get(search::find))
                .route("/ids/{text}", get(ids::find))
                .route("/workers", get(workers::list))
                .route("/devices/quarantined", get(devices::list))
                .route("/servers", get(servers::list))
                .route_layer(reads.clone()),
        )
        .merge(operator_routes().route_layer(operates.clone()))
        .merge(
            Router::new()
                .route("/workers/{id}/drain", post(workers::drain))
                .route("/tokens", get(tokens::list).post(tokens::create))
                .route("/tokens/{id}/revoke", post(tokens::revoke))
                .route("/sessions", get(sessions::list))
                .route("/sessions/{id}/end", post(sessions::end))
                .route("/prune", get(prune::show).post(prune::prune))
                .route_layer(administers.clone()),
        )
        .merge(
            Router::new()
                .route("/workers", post(workers::register))
                .route("/workers/{id}/heartbeat", post(workers::heartbeat))
                .route("/steps/{id}/report", post(workers::report))
                .route_layer(works.clone()),
        )
        .route_layer(from_fn(within_request_timeout));
    let held = Router::new()
        .merge(
            Router::new()
                .route("/runs/{id}/events", get(runs::events))
                .route("/live", get(live::open))
                .route_layer(reads.clone()),
        )
        .merge(Router::new().route("/workers/{id}/claim", post(workers::claim)).route_layer(works.clone()))
        .merge(Router::new().route("/requests/next", post(requests::next)).route_layer(operates.clone()))
        .route_layer(from_fn(within_long_poll_timeout));
    let archives = Router::new()
        .merge(
            Router::new()
                .route("/campaigns/{id}/archive", get(archive::export))
                // This call waits for steps in flight.
                .route("/campaigns/{id}/handover", post(handovers::begin))
                .route("/campaigns/{id}/handover/file", post(handovers::file))
                .route("/handovers/finish", post(handovers::finish))
                .route_layer(operates),
        )
        .merge(Router::new().route("/import", post(archive::import)).route_layer(administers))
        .route_layer(from_fn(within_archive_timeout));
    let api = quick
        .merge(held)
        .layer(DefaultBodyLimit::max(MAX_JSON_BYTES))
        .merge(artifact_routes(access))
        .merge(archives)
        // A route, because the additional pages may serve every path, and a fallback would come after them.
        .route("/{*call}", any(access::no_such_call))
        .fallback(access::no_such_call)
        .method_not_allowed_fallback(access::wrong_method)
        .with_state(app.clone());

    Router::new()
        .nest(PREFIX, api)
        // The nested router does not match its own root with a slash.
        .route(&format!("{PREFIX}/"), any(access::no_such_call))
        .merge(Router::new().route("/metrics", get(metrics::show)).route_layer(reads.clone()).with_state(app.clone()))
        // Pages call the API with the visitor's permissions and show nothing more.
        .merge(extra)
        .layer(from_fn_with_state(app.clone(), observe_request))
        .layer(from_fn_with_state(listens, access::known_host))
        .layer(from_fn(access::safe_headers))
        .layer(from_fn_with_state(app.shared.clone(), log_failures))
        .layer(TraceLayer::new_for_http().make_span_with(request_span).on_failure(()))
}

/// Returns the routes that change campaigns, runs and devices.
fn operator_routes() -> Router<App> {
    Router::new()
        .route("/campaigns", post(create_campaign::create))
        .route("/campaigns/{id}/control", post(campaigns::control))
        .route("/campaigns/{id}/priority", post(campaigns::prioritize))
        .route("/campaigns/{id}/handover/cancel", post(handovers::cancel))
        .route("/runs/{id}/control", post(run_control::control))
        .route("/runs/{id}/retry", post(run_control::retry))
        .route("/runs/{id}/scores", post(scores::recompute))
        .route("/runs/{id}/signals", post(run_control::signal))
        .route("/runs/{id}/priority", post(run_control::prioritize))
        .route("/campaigns/{id}/limits", post(limits::set))
        .route("/runs/bulk", post(bulk::act))
        .route("/devices/{device}/release", post(devices::release))
}

/// Returns the routes for signing in and out. The credentials are the argument of these calls.
fn session_routes(access: &Arc<Access>) -> Router<App> {
    Router::new()
        .route("/session", get(session::show).post(session::sign_in).delete(session::sign_out))
        .route_layer(DefaultBodyLimit::max(MAX_SIGN_IN_BYTES))
        .route_layer(from_fn_with_state(access.clone(), access::limited_sign_ins))
}

/// Returns the routes of artifacts.
fn artifact_routes(access: &Arc<Access>) -> Router<App> {
    let read = Router::new()
        // Without an explicit HEAD handler, axum uses the GET handler.
        .route("/artifacts/{hash}", get(artifacts::get).head(artifacts::head))
        .route_layer(from_fn_with_state(access.clone(), access::reads_artifacts));
    let written = Router::new()
        .route("/artifacts/{hash}", put(artifact_upload::put).patch(artifact_upload::append))
        .route_layer(from_fn_with_state(access.clone(), access::writes_artifacts));
    read.merge(written).route_layer(from_fn(within_transfer_timeout))
}

/// Returns the routes of tables. The timeout ends where the answer begins, because a table may be of any length.
fn table_routes(access: &Arc<Access>) -> Router<App> {
    Router::new()
        .route("/tables/campaigns", get(tables::campaigns))
        .route("/tables/runs", get(tables::runs))
        .route("/tables/attempts", get(tables::attempts))
        .route("/tables/tasks", get(tables::tasks))
        .route("/tables/models", get(tables::models))
        .route("/tables/workers", get(tables::workers))
        .route("/tables/steps", get(tables::steps))
        .route("/tables/events", get(tables::events))
        .route_layer(from_fn_with_state(access.clone(), access::reads))
}

/// Returns the routes of annotations on campaigns, runs and attempts.
fn team_routes(access: &Arc<Access>) -> Router<App> {
    let read = Router::new()
        .route("/notes", get(team::notes::list))
        .route("/tags", get(team::tags::list))
        .route("/tags/names", get(team::tags::names))
        .route("/pins", get(team::pins::list))
        .route("/views", get(team::views::list))
        .route_layer(from_fn_with_state(access.clone(), access::reads));
    let named = Router::new()
        .route("/views", post(team::views::add))
        .route("/views/{id}", put(team::views::edit).delete(team::views::delete))
        .route_layer(from_fn_with_state(access.clone(), access::reads_by_name));
    let changed = Router::new()
        .route("/notes", post(team::notes::add))
        .route("/notes/{id}", put(team::notes::edit).delete(team::notes::delete))
        .route("/tags", post(team::tags::change))
        .route("/pins", post(team::pins::set))
        .route("/shares", get(team::shares::list).post(team::shares::create))
        .route("/shares/{id}/revoke", post(team::shares::revoke))
        .route_layer(from_fn_with_state(access.clone(), access::operates));
    read.merge(named).merge(changed)
}

/// Returns the routes of webhooks.
fn webhook_routes(access: &Arc<Access>) -> Router<App> {
    Router::new()
        .route("/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/webhooks/{id}", delete(webhooks::delete))
        .route("/webhooks/{id}/deliveries", get(webhooks::deliveries))
        .route("/deliveries/{id}/repeat", post(webhooks::repeat))
        .route_layer(from_fn_with_state(access.clone(), access::administers))
}

/// Returns the routes of requests to outside agents. Waiting for one is a long poll.
fn request_routes(access: &Arc<Access>) -> Router<App> {
    let read = Router::new()
        .route("/requests", get(requests::list))
        .route("/requests/{id}", get(requests::show))
        .route_layer(from_fn_with_state(access.clone(), access::reads));
    let changed = Router::new()
        .route("/requests/{id}/extend", post(requests::extend))
        .route("/requests/{id}/release", post(requests::release))
        .route_layer(from_fn_with_state(access.clone(), access::operates));
    let answered = Router::new()
        .route("/requests/{id}/answer", post(requests::answer))
        // The whole body is read before it is refused, so that an agent gets the reason instead of a broken connection.
        .route_layer(DefaultBodyLimit::max(MAX_ANSWER_BODY_BYTES))
        .route_layer(from_fn_with_state(access.clone(), access::operates));
    read.merge(changed).merge(answered)
}

/// Logs server errors once each. Store errors are logged once for all callers that retry. `/health` only returns known
/// state.
async fn log_failures(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let repeats = REPEATS.contains(&request.uri().path());
    let doing = format!("{} {}", request.method(), request.uri().path());
    let response = next.run(request).await;
    match response.extensions().get::<Failed>() {
        Some(_) if repeats => {}
        Some(Failed(error)) if error.code.starts_with("store.") => {
            shared.error_log.failed_with(&doing, &error.code, &error.message);
        }
        Some(Failed(error)) => {
            tracing::error!(error.code = %error.code, error.message = %error.message, "a request failed");
        }
        None if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED => {
            shared.error_log.worked(&doing);
        }
        None => {}
    }
    response
}

/// Creates a span for a request with its route and path, but without query and headers.
fn request_span(request: &Request) -> tracing::Span {
    let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str);
    tracing::debug_span!(
        "request",
        http.method = %request.method(),
        http.route = route,
        http.path = request.uri().path(),
    )
}

async fn within_request_timeout(request: Request, next: Next) -> Result<Response, ApiFailure> {
    within(REQUEST_TIMEOUT, request, next).await
}

async fn within_long_poll_timeout(request: Request, next: Next) -> Result<Response, ApiFailure> {
    within(LONG_POLL_TIMEOUT, request, next).await
}

async fn within_transfer_timeout(request: Request, next: Next) -> Result<Response, ApiFailure> {
    within(MAX_ARTIFACT_TIMEOUT, request, next).await
}

async fn within_archive_timeout(request: Request, next: Next) -> Result<Response, ApiFailure> {
    within(MAX_ARCHIVE_TIMEOUT, request, next).await
}

async fn within(limit: Duration, request: Request, next: Next) -> Result<Response, ApiFailure> {
    tokio::time::timeout(limit, next.run(request)).await.map_err(|_| {
        ApiFailure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server.timed_out",
            format!("the call took longer than {} s: try again later", limit.as_secs()),
        )
    })
}
