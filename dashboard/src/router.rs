//! The routes of the pages.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::StepView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId};

use crate::page::{attempt, campaign, campaigns, failure, run};

/// Campaigns shown on the first page.
const MAX_CAMPAIGNS: u32 = 100;

const STYLE: &str = include_str!("style.css");

/// The pages, reading through this client.
pub fn router(client: Client) -> Router {
    Router::new()
        .route("/", get(show_campaigns))
        .route("/campaigns/{id}", get(show_campaign))
        .route("/runs/{id}", get(show_run))
        .route("/runs/{id}/attempts/{number}", get(show_attempt))
        .route("/style.css", get(|| async { ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE) }))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .with_state(client)
}

/// A page that could not be made.
struct PageError(StatusCode, String, String);

impl From<ClientError> for PageError {
    fn from(error: ClientError) -> Self {
        let status = match error.code() {
            code if code.ends_with(".not_found") => StatusCode::NOT_FOUND,
            "auth.required" | "auth.wrong_token" => StatusCode::UNAUTHORIZED,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self(status, error.code().to_owned(), error.to_string())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        (self.0, Html(failure::page(&self.1, &self.2))).into_response()
    }
}

fn not_found(what: &str) -> PageError {
    PageError(StatusCode::NOT_FOUND, "page.not_found".to_owned(), format!("{what} does not exist."))
}

async fn show_campaigns(State(client): State<Client>) -> Result<Html<String>, PageError> {
    let page = client.campaigns(Some(MAX_CAMPAIGNS), None).await?;
    Ok(Html(campaigns::page(&page.items, page.next.is_some())))
}

async fn show_campaign(State(client): State<Client>, Path(id): Path<String>) -> Result<Html<String>, PageError> {
    let id: CampaignId = id.parse().map_err(|_| not_found("This campaign"))?;
    Ok(Html(campaign::page(&client.campaign(&id).await?)))
}

async fn show_run(State(client): State<Client>, Path(id): Path<String>) -> Result<Html<String>, PageError> {
    let id: RunId = id.parse().map_err(|_| not_found("This run"))?;
    let detail = client.run(&id).await?;
    let steps: Vec<StepView> = client.run_steps(&id).await?;
    Ok(Html(run::page(&detail, &steps)))
}

async fn show_attempt(
    State(client): State<Client>,
    Path((id, number)): Path<(String, u32)>,
) -> Result<Html<String>, PageError> {
    let id: RunId = id.parse().map_err(|_| not_found("This run"))?;
    let detail = client.run(&id).await?;
    let Some(found) = detail.view.attempts.iter().find(|a| a.number == number) else {
        return Err(not_found("This attempt"));
    };
    let source = match &found.source {
        Some(hash) => Some(text(&client, hash).await?),
        None => None,
    };
    let log = match &found.build {
        Some(build) => Some(text(&client, &build.log).await?),
        None => None,
    };
    Ok(Html(attempt::page(&detail, found, source.as_deref(), log.as_deref())))
}

async fn text(client: &Client, hash: &ArtifactHash) -> Result<String, PageError> {
    Ok(String::from_utf8_lossy(&client.get_artifact(hash).await?).into_owned())
}
