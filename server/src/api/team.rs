//! Annotations of people on campaigns, runs and attempts: one file per noun. This file holds the common parts: the list
//! query, and the validation of targets.

pub(crate) mod notes;
pub(crate) mod pins;
pub(crate) mod shares;
pub(crate) mod tags;
pub(crate) mod views;

use nightshift_engine::store::{Among, PageRequest, Placed, StoreError};
use nightshift_protocol::access::Role;
use nightshift_protocol::api::{MAX_LABEL_CHARS, Page, RunDigest, Target};
use serde::Deserialize;

use crate::api::list::page_request;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::shared::Shared;

/// The query of a list about targets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AmongQuery {
    target: Option<Target>,
    /// Whether annotations of the runs and attempts of the target count, too.
    #[serde(default)]
    within: bool,
    tag: Option<String>,
    limit: Option<u32>,
    before: Option<String>,
}

impl AmongQuery {
    fn split(self) -> Result<(Among, PageRequest), ApiFailure> {
        let page = page_request(self.limit, self.before)?;
        Ok((Among { target: self.target, within: self.within, tag: self.tag }, page))
    }
}

/// Returns the page, from one row more than wanted.
pub(crate) fn page<T>(request: &PageRequest, mut rows: Vec<Placed<T>>) -> Page<T> {
    let wanted = usize::try_from(request.limit.saturating_sub(1)).unwrap_or(usize::MAX);
    let more = rows.len() > wanted;
    rows.truncate(wanted);
    let next = if more { rows.last().map(|row| row.place.to_string()) } else { None };
    Page { items: rows.into_iter().map(|row| row.item).collect(), next }
}

/// Refuses an attempt that its run does not have. The store checks campaigns and runs.
async fn examine_target(shared: &Shared, target: &Target) -> Result<(), ApiFailure> {
    let Target::Attempt(run, number) = target else { return Ok(()) };
    let mark = shared.store.watch.run_marks(std::slice::from_ref(run)).await?.pop();
    let mark = mark.ok_or_else(|| StoreError::NotFound { noun: "run", id: run.to_string() })?;
    let digest: RunDigest = serde_json::from_value(mark.digest)
        .map_err(|error| ApiFailure::internal("run.unreadable", format!("the digest of {run}: {error}")))?;
    if *number <= digest.attempts {
        return Ok(());
    }
    Err(StoreError::NotFound { noun: "attempt", id: target.to_string() }.into())
}

/// Validates the label of a pin or link, or the name of a view.
fn examine_label(label: &str, code: &str) -> Result<(), ApiFailure> {
    if label.chars().count() > MAX_LABEL_CHARS || label.chars().any(char::is_control) {
        let message = format!("a name or label has at most {MAX_LABEL_CHARS} characters and no control characters");
        return Err(ApiFailure::bad(code, message));
    }
    Ok(())
}

/// Checks that the caller is the author or an administrator.
fn examine_author(caller: &Caller, author: &str, what: &str) -> Result<(), ApiFailure> {
    if caller.name == author || caller.role == Role::Admin {
        return Ok(());
    }
    Err(ApiFailure::forbidden("access.not_yours", format!("only {author} or an administrator can change this {what}")))
}
