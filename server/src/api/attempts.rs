//! Attempts of all runs: lists, points, and the attempt of a point.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use nightshift_protocol::api::{
    AttemptFilter, AttemptPage, AttemptQuery, AttemptRow, InvalidQuery, POINTS_CONTENT_TYPE, PointsQuery,
};

use crate::api::list::DEFAULT_PAGE_ROWS;
use crate::attempt_index::Index;
use crate::error::ApiFailure;
use crate::extract::{Params, TextPair};

/// Name-value pairs of a query.
pub(super) type Pairs = Vec<(String, String)>;

/// Maximum length of a cursor.
const MAX_CURSOR_BYTES: usize = 128;

/// Lists attempts that match a filter, with the total number.
pub(crate) async fn list(
    State(index): State<Arc<Index>>,
    Params(query): Params<Pairs>,
) -> Result<Json<AttemptPage>, ApiFailure> {
    let mut query = AttemptQuery::from_pairs(query).map_err(|error| invalid(&error))?;
    query.limit = Some(query.limit.unwrap_or(DEFAULT_PAGE_ROWS));
    check_cursor(query.before.as_deref())?;
    Ok(Json(index.current().await?.list_attempts(&query).await?))
}

/// Returns the matching attempts as points.
pub(crate) async fn points(
    State(index): State<Arc<Index>>,
    Params(query): Params<Pairs>,
) -> Result<Response, ApiFailure> {
    let query = PointsQuery::from_pairs(query).map_err(|error| invalid(&error))?;
    let points = index.current().await?.attempt_points(&query).await?;
    Ok(([(CONTENT_TYPE, POINTS_CONTENT_TYPE)], points.into_bytes()).into_response())
}

/// Returns the attempt of a point.
pub(crate) async fn at(
    State(index): State<Arc<Index>>,
    TextPair(run_key, number): TextPair,
) -> Result<Json<AttemptRow>, ApiFailure> {
    let (Ok(key), Ok(place)) = (run_key.parse(), number.parse()) else {
        let message = format!("`{run_key}/{number}` names no attempt: expected the two numbers of a point");
        return Err(ApiFailure::not_found("attempt.not_found", message));
    };
    Ok(Json(index.current().await?.attempt_at(key, place).await?))
}

/// Parses the filter of a call without other parameters.
pub(super) fn filter(query: Pairs) -> Result<AttemptFilter, ApiFailure> {
    AttemptFilter::from_pairs(query).map_err(|error| invalid(&error))
}

pub(super) fn invalid(error: &InvalidQuery) -> ApiFailure {
    ApiFailure::bad("request.invalid_query", error.to_string())
}

pub(super) fn check_cursor(cursor: Option<&str>) -> Result<(), ApiFailure> {
    if cursor.is_some_and(|cursor| cursor.len() > MAX_CURSOR_BYTES) {
        return Err(ApiFailure::bad("request.invalid_query", "`before` must be the `next` of the page before"));
    }
    Ok(())
}
