//! Answers to requests for pages.

use axum::extract::{self, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use nightshift_client::Client;
use serde::de::DeserializeOwned;

use crate::failure::PageError;
use crate::shell::{self, Page};
use crate::visitor::Visitor;

impl Visitor {
    /// Renders the page, or the error page.
    pub(crate) fn answer(&self, page: Result<Page, PageError>) -> Response {
        let (status, page) = match page {
            Ok(page) => (StatusCode::OK, page),
            // No session, or an expired one: the visitor returns to this page after signing in.
            Err(error) if error.status == StatusCode::UNAUTHORIZED => {
                return Redirect::to(&self.sign_in()).into_response();
            }
            Err(error) => (error.status, error.into_page(self)),
        };
        (status, self.encodings.html(shell::document(self, page))).into_response()
    }
}

/// The parameters of a path. A path that cannot be parsed is answered with the page for missing objects.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Client> for Path<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, client: &Client) -> Result<Self, Response> {
        if let Ok(extract::Path(read)) = extract::Path::from_request_parts(parts, client).await {
            return Ok(Self(read));
        }
        let Ok(visitor) = Visitor::from_request_parts(parts, client).await;
        Err(visitor.answer(Err(PageError::not_found("This page"))))
    }
}
