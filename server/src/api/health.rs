//! `GET /health` and `GET /ready`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use nightshift_engine::store::StoreError;
use nightshift_protocol::api::Health;

use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::shared::Shared;

/// Timeout of the store for health checks, whose callers wait for a few seconds at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the store's answer, or an error after the timeout.
pub(crate) async fn in_time<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
        let message = format!("the database did not answer within {} s", PATIENCE.as_secs());
        Err(StoreError::Unreachable(message))
    })
}

/// Returns whether the server and its store work. Needs no token, because it reveals nothing about campaigns.
pub(crate) async fn show(State(shared): State<Arc<Shared>>) -> Result<Json<Health>, ApiFailure> {
    let trouble = match shared.store_health.current() {
        Some(error) => Some(error),
        None => in_time(shared.store.servers.list_servers()).await.err(),
    };
    let health = Health {
        status: trouble.as_ref().map_or("ok", StoreError::code).to_owned(),
        version: shared.config.version.clone(),
        database: shared.store.database.kind().to_owned(),
        now: shared.clock.now(),
        drives: shared.config.drives,
    };
    match trouble {
        None => Ok(Json(health)),
        Some(error) => {
            let details = serde_json::to_value(&health).unwrap_or_default();
            // The message contains a path of this machine, which must not be public if reading needs a token.
            let message = if shared.config.reads_need_token {
                "the database cannot be used: see the server's log".to_owned()
            } else {
                error.to_string()
            };
            Err(ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), message).with_details(details))
        }
    }
}

/// Returns whether this server should get requests: the store answers, and the server lease holds. Needs no token.
pub(crate) async fn ready(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
) -> Result<StatusCode, ApiFailure> {
    let not_ready = |code: &str, message: &str| Err(ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, code, message));
    if shared.shutdown.is_cancelled() {
        return not_ready("server.stopping", "the server is stopping: send calls to another one");
    }
    if shared.config.drives && driving.server_lease.current().is_none() {
        return not_ready(
            "server.no_life",
            "the server lease has expired, because a heartbeat was not written: the server registers again when the database answers",
        );
    }
    if let Err(error) = in_time(shared.store.servers.list_servers()).await {
        // As for `/health`: the message may contain a path of this machine.
        return not_ready(error.code(), "the database does not answer: see the server's log");
    }
    Ok(StatusCode::NO_CONTENT)
}
