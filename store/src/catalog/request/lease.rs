//! Leases on requests: one agent works on a request at a time.

use nightshift_engine::store::{RequestFilter, RequestLease};
use nightshift_protocol::api::{LeasedRequest, RequestDetail, RequestState, RequestView};
use nightshift_protocol::id::RequestId;
use nightshift_protocol::time::TimestampMs;

use super::{detail, request_query, restriction, view};
use crate::connection::Sql;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

/// Selects the oldest request that waits for an agent.
///
/// A request is not leased while its step is being carried out, because an answer at that time would find no waiting
/// step.
macro_rules! waiting {
    ($end:literal) => {
        request_query!(
            "WHERE q.answered_at_ms IS NULL AND q.deadline_ms > $5 \
             AND (q.lease_until_ms IS NULL OR q.lease_until_ms <= $5) \
             AND r.status = 'running' AND s.status = 'scheduled' \
             AND (CAST($1 AS TEXT) IS NULL OR c.public_id = $1) AND (CAST($2 AS TEXT) IS NULL OR r.public_id = $2) \
             AND (CAST($3 AS TEXT) IS NULL OR $3 LIKE '%,' || q.role || ',%') \
             AND (CAST($4 AS TEXT) IS NULL OR q.model = $4) ORDER BY q.id LIMIT 1",
            $end
        )
    };
}

/// On Postgres, a request that another agent is leasing is skipped.
pub(crate) const WAITING: Sql = Sql { sqlite: waiting!(""), postgres: waiting!(" FOR UPDATE OF q SKIP LOCKED") };

/// One request, locked.
pub(super) const LOCKED: Sql = Sql {
    sqlite: request_query!("WHERE q.public_id = $1"),
    postgres: request_query!("WHERE q.public_id = $1 FOR UPDATE OF q"),
};

pub(crate) async fn take(
    transaction: &mut Transaction<'_>,
    filter: &RequestFilter,
    lease: &RequestLease,
    at: TimestampMs,
) -> Result<Option<LeasedRequest>, Failure> {
    let connection = &mut *transaction.connection;
    let mut values = restriction(filter);
    values.extend(values![at.0]);
    let Some(row) = connection.fetch_optional(WAITING, values).await? else { return Ok(None) };
    let RequestDetail { mut request, question, .. } = detail(&row, at)?;
    let until = lease.until.min(request.deadline);
    let holder = json::clean(&lease.holder).into_owned();
    let sql = "UPDATE model_request SET lease = $2, holder = $3, lease_until_ms = $4 WHERE id = $1";
    connection.execute(sql, values![row.i64("id")?, lease.token.as_str(), holder.as_str(), until.0]).await?;
    request.state = RequestState::Leased;
    request.holder = Some(holder);
    request.leased_until = Some(until);
    Ok(Some(LeasedRequest { lease: lease.token.clone(), request, question }))
}

pub(crate) async fn extend(
    transaction: &mut Transaction<'_>,
    id: &RequestId,
    lease: &str,
    until: TimestampMs,
    at: TimestampMs,
) -> Result<RequestView, Failure> {
    let row = locked(transaction, id).await?;
    let mut request = view(&row, at)?;
    refuse_unless_waiting(&request)?;
    refuse_other_lease(&row, id, lease)?;
    let until = until.min(request.deadline);
    let sql = "UPDATE model_request SET lease_until_ms = $2 WHERE id = $1";
    transaction.connection.execute(sql, values![row.i64("id")?, until.0]).await?;
    request.state = RequestState::Leased;
    request.holder = row.opt_text("holder")?;
    request.leased_until = Some(until);
    Ok(request)
}

pub(crate) async fn release(
    transaction: &mut Transaction<'_>,
    id: &RequestId,
    lease: &str,
    at: TimestampMs,
) -> Result<(), Failure> {
    let row = locked(transaction, id).await?;
    if view(&row, at)?.state != RequestState::Leased {
        return Ok(());
    }
    refuse_other_lease(&row, id, lease)?;
    let sql = "UPDATE model_request SET lease_until_ms = NULL WHERE id = $1";
    transaction.connection.execute(sql, values![row.i64("id")?]).await?;
    Ok(())
}

/// Returns the request, locked on Postgres.
pub(super) async fn locked(transaction: &mut Transaction<'_>, id: &RequestId) -> Result<Row, Failure> {
    let row = transaction.connection.fetch_optional(LOCKED, values![id.as_str()]).await?;
    row.ok_or_else(|| Failure::not_found("request", id.as_str()))
}

/// Refuses a lease that was replaced by another one.
pub(super) fn refuse_other_lease(row: &Row, id: &RequestId, lease: &str) -> Result<(), Failure> {
    if row.opt_str("lease")? == Some(lease) {
        return Ok(());
    }
    let message = format!(
        "the lease is not the current one of {id}: it expired or was mistyped. Take the request again with `nightshift \
         requests next`, which hands it out when the current lease has ended"
    );
    Err(Failure::refused("request.lease_lost", message))
}

/// Refuses a request that no longer waits for an answer.
pub(super) fn refuse_unless_waiting(request: &RequestView) -> Result<(), Failure> {
    let id = &request.id;
    match request.state {
        RequestState::Open | RequestState::Leased => Ok(()),
        RequestState::Answered => {
            Err(Failure::refused("request.answered", format!("{id} was answered; the first answer counts")))
        }
        RequestState::Expired => Err(Failure::refused(
            "request.expired",
            format!("the deadline of {id} passed: its step goes on without the answer. Ask for the next"),
        )),
        RequestState::Cancelled => Err(Failure::refused(
            "request.cancelled",
            format!("{id} is not wanted any more: its step or its run ended. Ask for the next"),
        )),
    }
}
