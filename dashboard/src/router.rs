//! The routes of the pages.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use nightshift_client::Client;
use nightshift_protocol::api::StepView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId};

use crate::assets::{self, ASSETS};
use crate::page::failure::PageError;
use crate::page::{attempt, campaign, campaigns, run, sign_in};
use crate::shell::Page;
use crate::theme::{COOKIE, Theme};
use crate::visitor::Visitor;

/// Campaigns shown on the first page.
const MAX_CAMPAIGNS: u32 = 100;

/// The pages, reading through this client with the rights of each visitor. It needs no token of its own.
pub fn router(client: Client) -> Router {
    LazyLock::force(&ASSETS);
    Router::new()
        .route("/", get(show_campaigns))
        .route("/campaigns/{id}", get(show_campaign))
        .route("/runs/{id}", get(show_run))
        .route("/runs/{id}/attempts/{number}", get(show_attempt))
        .route("/sign-in", get(show_sign_in))
        .route("/theme", post(set_theme))
        .route("/pkg/{name}", get(assets::serve))
        .route("/favicon.ico", get(assets::serve_icon))
        .fallback(show_nothing)
        .with_state(client)
}

async fn show_campaigns(visitor: Visitor) -> Response {
    let page = async {
        let page = visitor.client.campaigns(Some(MAX_CAMPAIGNS), None).await?;
        Ok(campaigns::page(&page.items, page.next.is_some()))
    };
    visitor.answer(page.await)
}

async fn show_campaign(visitor: Visitor, Path(id): Path<String>) -> Response {
    let page = async {
        let id: CampaignId = id.parse().map_err(|_| PageError::not_found("This campaign"))?;
        Ok(campaign::page(&visitor.client.campaign(&id).await?))
    };
    visitor.answer(page.await)
}

async fn show_run(visitor: Visitor, Path(id): Path<String>) -> Response {
    let page = async {
        let id: RunId = id.parse().map_err(|_| PageError::not_found("This run"))?;
        let detail = visitor.client.run(&id).await?;
        let steps: Vec<StepView> = visitor.client.run_steps(&id).await?;
        Ok(run::page(&detail, &steps))
    };
    visitor.answer(page.await)
}

async fn show_attempt(visitor: Visitor, Path((id, number)): Path<(String, u32)>) -> Response {
    visitor.answer(attempt_page(&visitor.client, &id, number).await)
}

async fn attempt_page(client: &Client, id: &str, number: u32) -> Result<Page, PageError> {
    let id: RunId = id.parse().map_err(|_| PageError::not_found("This run"))?;
    let detail = client.run(&id).await?;
    let Some(found) = detail.view.attempts.iter().find(|a| a.number == number) else {
        return Err(PageError::not_found("This attempt"));
    };
    let source = match &found.source {
        Some(hash) => Some(text(client, hash).await?),
        None => None,
    };
    let log = match &found.build {
        Some(build) => Some(text(client, &build.log).await?),
        None => None,
    };
    Ok(attempt::page(&detail, found, source.as_deref(), log.as_deref()))
}

async fn text(client: &Client, hash: &ArtifactHash) -> Result<String, PageError> {
    Ok(String::from_utf8_lossy(&client.get_artifact(hash).await?).into_owned())
}

async fn show_sign_in(visitor: Visitor, RawQuery(query): RawQuery) -> Response {
    let next = query.as_deref().and_then(|query| query.strip_prefix("next=")).unwrap_or("/");
    let page = sign_in::page(own_page(next));
    visitor.answer(Ok(page))
}

async fn show_nothing(visitor: Visitor) -> Response {
    visitor.answer(Err(PageError::not_found("This page")))
}

/// Keeps a choice of colours and goes back to the page that it was made on: the switch of pages whose program does not run.
async fn set_theme(RawQuery(query): RawQuery, body: String) -> Response {
    let theme = Theme::parse(body.strip_prefix(COOKIE).and_then(|rest| rest.strip_prefix('=')).unwrap_or_default());
    let back = query.as_deref().and_then(|query| query.strip_prefix("back=")).unwrap_or("/");
    let (Ok(cookie), Ok(back)) = (HeaderValue::from_str(&theme.to_cookie()), HeaderValue::from_str(own_page(back)))
    else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, back)]).into_response()
}

/// The address when it is one of ours, else the first page: nobody is sent to another site.
fn own_page(address: &str) -> &str {
    let is_ours = address.starts_with('/') && !address.starts_with("//") && !address.contains('\\');
    if is_ours { address } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        assert_eq!(own_page("/runs/run_1?a=b"), "/runs/run_1?a=b");
        for foreign in ["//evil.example", "https://evil.example", "/\\evil.example", ""] {
            assert_eq!(own_page(foreign), "/", "{foreign}");
        }
    }
}
