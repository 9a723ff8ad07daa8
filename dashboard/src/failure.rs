//! The error page.

use axum::http::StatusCode;
use leptos::prelude::*;
use nightshift_client::ClientError;

use crate::format::sentence;
use crate::shell::Page;
use crate::visitor::Visitor;

/// An error that prevents a page from being rendered.
#[derive(Debug)]
pub(crate) struct PageError {
    pub(crate) status: StatusCode,
    code: String,
    pub(crate) message: String,
}

impl PageError {
    /// Creates the error for a missing object.
    pub(crate) fn not_found(what: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: "page.not_found".to_owned(),
            message: format!("{what} does not exist. It may have been deleted, or the address is not complete."),
        }
    }

    /// Creates the error for an invalid query.
    pub(crate) fn bad_query(reason: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "request.invalid_query".to_owned(),
            message: format!("The address asks for something that is not there: {reason}."),
        }
    }

    /// Renders the code, the message and the next step for this visitor.
    pub(crate) fn into_page(self, visitor: &Visitor) -> Page {
        let who = &visitor.who;
        let is_limited = who.limited_to().is_some();
        let advice = match (self.status, who.words()) {
            (_, Some(words)) if is_limited => {
                format!("The link that you opened shows one thing alone: {words}.")
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(words)) => {
                format!("You are {words}, and that does not allow this page. Ask an administrator for another token.")
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, None) => "Sign in to see this page.".to_owned(),
            (StatusCode::BAD_REQUEST, _) => {
                "Take the part that is named out of the address, or begin from the navigation.".to_owned()
            }
            (StatusCode::NOT_FOUND, _) => "The list of campaigns shows what is there.".to_owned(),
            _ => "Load the page again in a moment. If it stays like this, look at the log of the server.".to_owned(),
        };
        let back = if is_limited { "Back to what was shared with you" } else { "All campaigns" };
        let sign_in = matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN).then(|| {
            let href = visitor.sign_in();
            view! { " "<a class="button" href=href>"Sign in with another token"</a> }
        });
        Page::new(
            "Error",
            view! {
                <section class="blank" role="alert">
                    <h1>"This page cannot be shown"</h1>
                    <p>{sentence(self.message)}</p>
                    <p>{advice}</p>
                    <p class="quiet">"Code: "<code>{self.code}</code></p>
                    <p><a class="button" href=who.home()>{back}</a>{sign_in}</p>
                </section>
            },
        )
    }
}

/// Explains that a page needs a role. Returns `None` when the error has another cause.
pub(crate) fn needs_role(visitor: &Visitor, error: &ClientError, words: &'static str) -> Option<AnyView> {
    matches!(error.status(), Some(401 | 403)).then(|| {
        let (sign_in, code) = (visitor.sign_in(), error.code().to_owned());
        view! {
            <p class="empty">
                {words}" "<a href=sign_in>"Sign in as one"</a>" to see this page. "<code class="quiet">{code}</code>
            </p>
        }
        .into_any()
    })
}

impl From<ClientError> for PageError {
    fn from(error: ClientError) -> Self {
        let status = match error.status() {
            Some(status @ (400 | 401 | 403 | 404 | 503)) => {
                StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            _ => StatusCode::BAD_GATEWAY,
        };
        Self { status, code: error.code().to_owned(), message: error.to_string() }
    }
}
