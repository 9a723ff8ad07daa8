//! The routes of the pages.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use nightshift_client::Client;

use crate::address::Address;
use crate::assets::{self, ASSETS};
use crate::failure::PageError;
use crate::keys;
use crate::page::{
    admin, attempt, attempts, campaign, campaigns, compare, health, models, run, search, sign_in, tasks, views,
    webhooks, workers,
};
use crate::theme::{COOKIE, Theme};
use crate::visitor::Visitor;

/// Returns the routes of the pages. They read through this client, which needs no token, with the rights of each visitor.
pub fn router(client: Client) -> Router {
    LazyLock::force(&ASSETS);
    Router::new()
        .route("/", get(campaigns::show))
        .route("/campaigns/{id}", get(campaign::show))
        .route("/campaigns/{id}/report.html", get(campaign::show_report))
        .route("/runs/{id}", get(run::show))
        .route("/runs/{id}/report.html", get(run::show_report))
        .route("/runs/{id}/trace.json", get(run::show_trace))
        .route("/runs/{id}/attempts/{number}", get(attempt::show))
        .route("/runs/{id}/attempts/{number}/report.html", get(attempt::show_report))
        .route("/runs/{id}/attempts/{number}/trace.json", get(attempt::show_trace))
        .route("/compare", get(compare::show))
        .route("/attempts", get(attempts::show))
        .route("/tasks", get(tasks::show))
        .route("/models", get(models::show))
        .route("/search", get(search::show))
        .route("/workers", get(workers::show))
        .route("/health", get(health::show))
        .route("/views", get(views::show))
        .route("/webhooks", get(webhooks::show))
        .route("/admin", get(admin::show))
        .route("/sign-in", get(show_sign_in).post(take_sign_in))
        .route("/sign-out", post(sign_out))
        .route("/theme", post(set_theme))
        .route("/keys", post(set_keys))
        .route("/pkg/{name}", get(assets::serve))
        .route("/favicon.ico", get(assets::serve_icon))
        .fallback(show_nothing)
        .with_state(client)
}

async fn show_sign_in(visitor: Visitor) -> Response {
    let address = Address::parse(&visitor.address);
    sign_in::show(&visitor, own_page(address.get("next").unwrap_or("/"))).await
}

async fn take_sign_in(visitor: Visitor, headers: HeaderMap, body: String) -> Response {
    let address = Address::parse(&visitor.address);
    sign_in::take(&visitor, &headers, own_page(address.get("next").unwrap_or("/")), &body).await
}

async fn sign_out(visitor: Visitor, headers: HeaderMap) -> Response {
    sign_in::leave(&visitor, &headers).await
}

async fn show_nothing(visitor: Visitor) -> Response {
    visitor.answer(Err(PageError::not_found("This page")))
}

/// Stores the theme and returns to the page, for browsers without scripts.
async fn set_theme(RawQuery(query): RawQuery, body: String) -> Response {
    let theme = Theme::parse(body.strip_prefix(COOKIE).and_then(|rest| rest.strip_prefix('=')).unwrap_or_default());
    back_with(&theme.to_cookie(), query.as_deref())
}

/// Keeps whether single keys do something, and goes back.
async fn set_keys(RawQuery(query): RawQuery, body: String) -> Response {
    back_with(&keys::to_cookie(&body), query.as_deref())
}

/// To the page on which something was chosen, with the cookie that keeps it.
fn back_with(cookie: &str, query: Option<&str>) -> Response {
    let back = query.and_then(|query| query.strip_prefix("back=")).unwrap_or("/");
    let (Ok(cookie), Ok(back)) = (HeaderValue::from_str(cookie), HeaderValue::from_str(own_page(back))) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, back)]).into_response()
}

/// Returns the address when it is a page of this server, else the first page. This prevents open redirects.
fn own_page(address: &str) -> &str {
    // Browsers drop tabs and line ends from an address before they read it: `/\t/elsewhere` is another site.
    let is_odd = address.contains('\\') || address.contains(char::is_control);
    let is_ours = address.starts_with('/') && !address.starts_with("//") && !is_odd;
    if is_ours { address } else { "/" }
}

#[cfg(test)]
mod tests {
    use axum::extract::Request;
    use axum::handler::Handler as _;
    use axum::routing::any_service;
    use futures::FutureExt as _;

    use super::*;

    /// Returns the status and content type of the answer to a visitor without credentials. No server is called.
    fn answer(path: &str) -> (StatusCode, String) {
        let client = Client::new("http://127.0.0.1:9", None).unwrap_or_else(|error| panic!("{error}"));
        let request = Request::builder().uri(path).body(axum::body::Body::empty()).unwrap_or_default();
        let answer = any_service(router(client)).call(request, ()).now_or_never();
        let answer = answer.unwrap_or_else(|| panic!("{path} asks the server"));
        let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        (answer.status(), kind.to_owned())
    }

    #[test]
    fn an_address_that_cannot_be_read_has_the_page_of_one_that_leads_nowhere() {
        let nowhere = (StatusCode::NOT_FOUND, "text/html; charset=utf-8".to_owned());
        assert_eq!(answer("/nowhere"), nowhere);
        let run = format!("/runs/run_{}/attempts", "1".repeat(32));
        for number in ["abc", "-1", "99999999999999999999", "1.5", "%ff", "abc/report.html", "-1/trace.json"] {
            assert_eq!(answer(&format!("{run}/{number}")), nowhere, "{number}");
        }
        for path in [
            "/runs/%ff",
            "/runs/%ff/report.html",
            "/runs/%ff/trace.json",
            "/campaigns/%ff",
            "/campaigns/%ff/report.html",
        ] {
            assert_eq!(answer(path), nowhere, "{path}");
        }
    }

    #[test]
    fn redirects_to_other_sites_are_refused() {
        assert_eq!(own_page("/runs/run_1?a=b"), "/runs/run_1?a=b");
        for foreign in
            ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example", "/\n/evil.example", ""]
        {
            assert_eq!(own_page(foreign), "/", "{foreign}");
        }
    }
}
