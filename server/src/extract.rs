//! Extractors whose errors have the form of API errors.

use std::str::FromStr;

use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use nightshift_protocol::id::{CampaignId, InvalidId, RunId, StepId, WorkerId};
use serde::de::DeserializeOwned;

use crate::error::ApiFailure;

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiFailure;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiFailure> {
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(value)) => Ok(Self(value)),
            Err(JsonRejection::MissingJsonContentType(_)) => Err(ApiFailure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "request.content_type",
                "the body must be JSON: send the header `content-type: application/json`",
            )),
            Err(JsonRejection::JsonSyntaxError(error)) => {
                Err(ApiFailure::bad("request.malformed_json", format!("the body is no JSON: {}", cause(&error))))
            }
            Err(JsonRejection::JsonDataError(error)) => Err(ApiFailure::bad(
                "request.invalid",
                format!("the body is JSON, but not what this call takes: {}", cause(&error)),
            )),
            Err(JsonRejection::BytesRejection(error)) => Err(unread_body(&error)),
            Err(error) => Err(ApiFailure::bad("request.invalid", error.body_text())),
        }
    }
}

/// Returns the problem and its position, without the words about internal types.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn unread_body(error: &BytesRejection) -> ApiFailure {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiFailure::new(StatusCode::PAYLOAD_TOO_LARGE, "request.too_large", "the body is larger than this call takes")
    } else {
        ApiFailure::bad("request.incomplete", "the body arrived incompletely")
    }
}

/// The query of the address.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiFailure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(error) => Err(ApiFailure::bad("request.invalid_query", error.body_text())),
        }
    }
}

/// An id as the only variable of the path. An invalid id is not found.
pub(crate) struct IdPath<T>(pub(crate) T);

/// A noun whose id occurs in paths.
pub(crate) trait PathId: FromStr<Err = InvalidId> + Send {
    const NOT_FOUND: &'static str;
}

impl PathId for CampaignId {
    const NOT_FOUND: &'static str = "campaign.not_found";
}
impl PathId for RunId {
    const NOT_FOUND: &'static str = "run.not_found";
}
impl PathId for StepId {
    const NOT_FOUND: &'static str = "step.not_found";
}
impl PathId for WorkerId {
    const NOT_FOUND: &'static str = "worker.not_found";
}

impl<S: Send + Sync, T: PathId> FromRequestParts<S> for IdPath<T> {
    type Rejection = ApiFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiFailure> {
        let TextPath(text) = TextPath::from_request_parts(parts, state).await?;
        text.parse().map(Self).map_err(|error: InvalidId| ApiFailure::not_found(T::NOT_FOUND, error.to_string()))
    }
}

/// A text as the only variable of the path.
pub(crate) struct TextPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for TextPath {
    type Rejection = ApiFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiFailure> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(error) => Err(ApiFailure::bad("request.invalid_path", error.body_text())),
        }
    }
}

/// Two texts as the only variables of the path.
pub(crate) struct TextPair(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for TextPair {
    type Rejection = ApiFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiFailure> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((first, second))) => Ok(Self(first, second)),
            Err(error) => Err(ApiFailure::bad("request.invalid_path", error.body_text())),
        }
    }
}
