//! `GET /health`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use nightshift_engine::store::StoreError;
use nightshift_protocol::api::Health;

use crate::app::App;
use crate::error::ApiFailure;

/// Whether the server and its store work. Open to everyone: it tells nothing about campaigns.
pub(crate) async fn show(State(app): State<Arc<App>>) -> Result<Json<Health>, ApiFailure> {
    let trouble = match app.trouble.current() {
        Some(error) => Some(error),
        None => app.store.list_workers(1).await.err(),
    };
    let health = Health {
        status: trouble.as_ref().map_or("ok", StoreError::code).to_owned(),
        version: app.config.version.clone(),
        database: app.store.kind().to_owned(),
        now: app.clock.now(),
        drives: app.config.drives,
    };
    match trouble {
        None => Ok(Json(health)),
        Some(error) => {
            let details = serde_json::to_value(&health).unwrap_or_default();
            // The message names a path of this machine: not for everyone where reading needs a token.
            let message = if app.config.reads_need_token {
                "the database cannot be used: see the server's log".to_owned()
            } else {
                error.to_string()
            };
            Err(ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), message).with_details(details))
        }
    }
}
