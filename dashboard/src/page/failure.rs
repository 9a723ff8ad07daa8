//! The page for what could not be shown.

use axum::http::StatusCode;
use leptos::prelude::*;
use nightshift_client::ClientError;

use crate::shell::Page;
use crate::visitor::Visitor;

/// A page that could not be made.
#[derive(Debug)]
pub(crate) struct PageError {
    pub(crate) status: StatusCode,
    code: String,
    message: String,
}

impl PageError {
    /// What was asked for does not exist.
    pub(crate) fn not_found(what: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: "page.not_found".to_owned(),
            message: format!("{what} does not exist. It may have been deleted, or the address is not complete."),
        }
    }

    /// The address asks for something that does not exist.
    pub(crate) fn bad_query(reason: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "request.invalid_query".to_owned(),
            message: format!("The address asks for something that is not there: {reason}."),
        }
    }

    /// Code and message, and where to go from here.
    pub(crate) fn into_page(self) -> Page {
        let advice = match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "Your token does not allow this page. Ask who runs this server for another one."
            }
            StatusCode::BAD_REQUEST => "Take the part that is named out of the address, or begin from the navigation.",
            StatusCode::NOT_FOUND => "The list of campaigns shows what is there.",
            _ => "Load the page again in a moment. If it stays like this, look at the log of the server.",
        };
        Page::new(
            "Error",
            view! {
                <section class="blank" role="alert">
                    <h1>"This page cannot be shown"</h1>
                    <p>{self.message}</p>
                    <p>{advice}</p>
                    <p class="quiet">"Code: "<code>{self.code}</code></p>
                    <p><a class="button" href="/">"All campaigns"</a></p>
                </section>
            },
        )
    }
}

/// Why a visitor sees nothing of a page that needs a role; none when the failure is another one.
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
