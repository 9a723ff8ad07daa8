//! The sign-in page.

use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leptos::prelude::*;
use nightshift_client::Client;

use crate::address::Address;
use crate::failure::PageError;
use crate::form::Form;
use crate::format::sentence;
use crate::shell::Page;
use crate::visitor::Visitor;
use crate::who::Who;

/// Answers `GET /sign-in`. After signing in, the visitor continues to `next`, a page of this server.
pub(crate) async fn show(visitor: &Visitor, next: &str) -> Response {
    let link = of_link(&visitor.client, &visitor.who, next).await;
    visitor.answer(Ok(page(next, &visitor.who, link, None)))
}

/// Answers `POST /sign-in`, the form of a browser without scripts.
pub(crate) async fn take(visitor: &Visitor, browser: &HeaderMap, next: &str, body: &str) -> Response {
    let fields = Address::parse(&format!("?{body}"));
    match visitor.client.sign_in(fields.get("token").unwrap_or_default(), browser).await {
        Ok(cookies) => on_with(cookies, next),
        Err(error) => {
            let refusal = PageError::from(error);
            let mut answer = visitor.answer(Ok(page(next, &visitor.who, "keep", Some(refusal.message))));
            *answer.status_mut() = refusal.status;
            answer
        }
    }
}

/// Answers `POST /sign-out`, the form of a browser without scripts.
pub(crate) async fn leave(visitor: &Visitor, browser: &HeaderMap) -> Response {
    match visitor.client.sign_out(browser).await {
        Ok(cookies) => on_with(cookies, "/"),
        Err(error) => visitor.answer(Err(error.into())),
    }
}

/// Redirects to a page of this server and sets the cookies.
fn on_with(cookies: Vec<HeaderValue>, next: &str) -> Response {
    let Ok(next) = HeaderValue::from_str(next) else { return StatusCode::BAD_REQUEST.into_response() };
    let mut answer = (StatusCode::SEE_OTHER, [(LOCATION, next)]).into_response();
    for cookie in cookies {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    answer
}

/// Returns what the page does with the secret of a shared link to `next`. Without a session it takes the link (`take`).
/// A session that can read the page stays (`keep`). Before it replaces another session, it asks (`ask`).
async fn of_link(client: &Client, who: &Who, next: &str) -> &'static str {
    if !who.is_signed_in() {
        return "take";
    }
    let reads = match who.limited_to() {
        None => true,
        Some(_) => reads(client, next).await,
    };
    if reads { "keep" } else { "ask" }
}

/// Returns whether the client may read the campaign or run that this path shows.
async fn reads(client: &Client, next: &str) -> bool {
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let mut parts = path.split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("campaigns"), Some(id)) => match id.parse() {
            Ok(id) => client.campaign(&id).await.is_ok(),
            Err(_) => false,
        },
        (Some("runs"), Some(id)) => match id.parse() {
            Ok(id) => client.run(&id).await.is_ok(),
            Err(_) => false,
        },
        _ => false,
    }
}

fn page(next: &str, who: &Who, link: &'static str, refusal: Option<String>) -> Page {
    let known = who.words().filter(|_| who.is_signed_in()).map(|words| {
        let href = next.to_owned();
        view! {
            <p class="notice">
                "You are signed in: "<strong>{words}</strong>". "<a href=href>"Go on"</a>", or sign in with another token:"
            </p>
        }
    });
    let fields = view! {
        <label>
            "Token"
            <input type="password" name="token" autocomplete="current-password" required=true />
        </label>
        <button type="submit" class="strong">"Sign in"</button>
    };
    let refusal = refusal.map(|why| view! { <p class="notice bad" role="alert">{sentence(why)}</p> });
    let action = Address::parse("/sign-in").with("next", Some(next)).href();
    let form = Form::new("POST", "/session", "You are signed in.").action(action).next(next).link(link);
    let form = form.around(fields.into_any());
    Page::new(
        "Sign in",
        view! {
            <section class="blank">
                <h1>"Sign in"</h1>
                {known}
                <p>
                    "A token says what you may do: a viewer reads, an operator controls campaigns, an admin does everything. "
                    "An administrator of this server creates one for you with "<code>"nightshift token create"</code>"."
                </p>
                {refusal}
                {form}
            </section>
        },
    )
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::access::Role;

    use super::*;

    fn html(who: &Who, link: &'static str) -> String {
        crate::report::with_links(page("/runs/run_1?a=b", who, link, None))
    }

    #[test]
    fn a_signed_in_visitor_sees_the_session_and_can_continue() {
        let html = html(&Who::sample("<b>night", Role::Operator), "keep");
        assert!(html.contains("&lt;b&gt;night · operator") && html.contains("href=\"/runs/run_1?a=b\""), "{html}");
        assert!(html.contains("data-link=\"keep\""), "{html}");
    }

    #[test]
    fn a_visitor_without_a_session_sees_only_the_form_and_takes_a_link() {
        let html = html(&Who::default(), "take");
        assert!(!html.contains("You are signed in: ") && html.contains("data-link=\"take\""), "{html}");
        assert!(html.contains("data-call=\"POST /api/v1/session\"") && html.contains("data-next=\"/runs/run_1?a=b\""));
    }
}
