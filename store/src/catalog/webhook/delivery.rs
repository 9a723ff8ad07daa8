//! Deliveries of webhooks, stored before they are sent.

use nightshift_engine::store::{DeliveryEnd, NewDelivery, PageRequest, Placed};
use nightshift_protocol::api::{Delivery, DeliveryStatus};
use nightshift_protocol::id::{DeliveryId, WebhookId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{MAX_PAGE, public_id};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

macro_rules! delivery_query {
    ($tail:literal) => {
        concat!(
            "SELECT d.id, d.public_id, w.public_id AS webhook, d.status, d.tries, d.next_at_ms, d.problem, d.message \
             FROM webhook_delivery d JOIN webhook w ON w.id = d.webhook_id ",
            $tail
        )
    };
}

/// Due deliveries of a webhook. On Postgres, deliveries that another server is leasing are skipped.
pub(crate) const DUE: Sql = Sql {
    sqlite: delivery_query!(
        "WHERE w.public_id = $1 AND d.status = 'pending' AND d.next_at_ms <= $2 ORDER BY d.next_at_ms, d.id LIMIT $3"
    ),
    postgres: delivery_query!(
        "WHERE w.public_id = $1 AND d.status = 'pending' AND d.next_at_ms <= $2 ORDER BY d.next_at_ms, d.id LIMIT $3 \
         FOR UPDATE OF d SKIP LOCKED"
    ),
};

pub(crate) async fn put(
    transaction: &mut Transaction<'_>,
    deliveries: &[NewDelivery],
    at: TimestampMs,
) -> Result<u64, Failure> {
    let mut new = 0;
    for delivery in deliveries {
        let sql = "INSERT INTO webhook_delivery (public_id, webhook_id, subject, message, status, next_at_ms, created_at_ms) \
                   SELECT $1, id, $3, $4, 'pending', $5, $5 FROM webhook WHERE public_id = $2 \
                   ON CONFLICT DO NOTHING";
        // SQLite parses `ON` after a SELECT without WHERE as a join, so the statement has a WHERE.
        let values = values![
            delivery.id.as_str(),
            delivery.webhook.as_str(),
            json::clean(&delivery.subject),
            json::write(&delivery.message)?,
            at.0
        ];
        new += transaction.connection.execute(sql, values).await?;
    }
    Ok(new)
}

pub(crate) async fn due_webhooks(connection: &mut Connection, at: TimestampMs) -> Result<Vec<WebhookId>, Failure> {
    let sql = "SELECT w.public_id FROM webhook w WHERE w.id IN \
               (SELECT webhook_id FROM webhook_delivery WHERE status = 'pending' AND next_at_ms <= $1) ORDER BY w.id";
    let rows = connection.fetch_all(sql, values![at.0]).await?;
    rows.iter().map(|row| public_id(row.str(0)?, "a webhook's id")).collect()
}

pub(crate) async fn take(
    transaction: &mut Transaction<'_>,
    webhook: &WebhookId,
    at: TimestampMs,
    until: TimestampMs,
    limit: u32,
) -> Result<Vec<Delivery>, Failure> {
    let connection = &mut *transaction.connection;
    let rows = connection.fetch_all(DUE, values![webhook.as_str(), at.0, limit.min(MAX_PAGE)]).await?;
    let mut taken = Vec::with_capacity(rows.len());
    for row in &rows {
        let delivery = record(row)?;
        let sql = "UPDATE webhook_delivery SET tries = tries + 1, next_at_ms = $2 WHERE id = $1";
        connection.execute(sql, values![row.i64("id")?, until.0]).await?;
        taken.push(Delivery { tries: delivery.tries + 1, next_at: Some(until), ..delivery });
    }
    Ok(taken)
}

pub(crate) async fn end(
    transaction: &mut Transaction<'_>,
    id: &DeliveryId,
    tries: u32,
    end: &DeliveryEnd,
) -> Result<(), Failure> {
    let (status, next_at, problem) = match end {
        DeliveryEnd::Delivered => (DeliveryStatus::Delivered, None, None),
        DeliveryEnd::Again { at, problem } => (DeliveryStatus::Pending, Some(at.0), Some(problem)),
        DeliveryEnd::GivenUp { problem } => (DeliveryStatus::GivenUp, None, Some(problem)),
    };
    let sql = "UPDATE webhook_delivery SET status = $3, next_at_ms = coalesce($4, next_at_ms), problem = $5 \
               WHERE public_id = $1 AND tries = $2 AND status = 'pending'";
    let problem = problem.map(|problem| json::clean(problem).into_owned());
    transaction.connection.execute(sql, values![id.as_str(), tries, status.as_str(), next_at, problem]).await?;
    Ok(())
}

pub(crate) async fn list(
    connection: &mut Connection,
    webhook: &WebhookId,
    page: &PageRequest,
) -> Result<Vec<Placed<Delivery>>, Failure> {
    let key = super::key_of(connection, webhook).await?;
    let before: i64 = match &page.before {
        None => i64::MAX,
        Some(before) => before.parse().map_err(|_| Failure::not_a_cursor())?,
    };
    let sql = delivery_query!("WHERE d.webhook_id = $1 AND d.id < $2 ORDER BY d.id DESC LIMIT $3");
    let rows = connection.fetch_all(sql, values![key, before, page.limit.min(MAX_PAGE)]).await?;
    rows.iter().map(|row| Ok(Placed { place: from_stored(row.i64("id")?), item: record(row)? })).collect()
}

pub(crate) async fn repeat(
    transaction: &mut Transaction<'_>,
    id: &DeliveryId,
    at: TimestampMs,
) -> Result<Delivery, Failure> {
    let connection = &mut *transaction.connection;
    let sql = "UPDATE webhook_delivery SET status = 'pending', tries = 0, next_at_ms = $2 WHERE public_id = $1";
    if connection.execute(sql, values![id.as_str(), at.0]).await? == 0 {
        return Err(Failure::not_found("delivery", id.as_str()));
    }
    let row = connection.fetch_one(delivery_query!("WHERE d.public_id = $1"), values![id.as_str()]).await?;
    record(&row)
}

macro_rules! old_deliveries {
    ($campaign:literal) => {
        concat!(
            "DELETE FROM webhook_delivery WHERE created_at_ms < $1 AND status <> 'pending' AND NOT EXISTS \
             (SELECT 1 FROM campaign c JOIN run r ON r.campaign_id = c.id WHERE c.public_id = ",
            $campaign,
            " AND r.status IN ('running', 'paused', 'cancelling'))"
        )
    };
}

/// Old deliveries, except those of unfinished campaigns, whose subjects would be delivered again.
const FORGET: Sql = Sql {
    sqlite: old_deliveries!("json_extract(message, '$.campaign')"),
    postgres: old_deliveries!("message::json ->> 'campaign'"),
};

pub(crate) async fn forget(transaction: &mut Transaction<'_>, before: TimestampMs) -> Result<u64, Failure> {
    transaction.connection.execute(FORGET, values![before.0]).await
}

fn record(row: &Row) -> Result<Delivery, Failure> {
    let status = row.str("status")?;
    let status = DeliveryStatus::parse(status)
        .ok_or_else(|| Failure::unreadable("the status of a delivery", &format!("`{status}` is none")))?;
    let id = row.str("public_id")?;
    Ok(Delivery {
        id: public_id(id, "a delivery's id")?,
        webhook: public_id(row.str("webhook")?, "a webhook's id")?,
        status,
        tries: u32::try_from(row.i64("tries")?).unwrap_or(u32::MAX),
        next_at: (status == DeliveryStatus::Pending).then_some(TimestampMs(row.i64("next_at_ms")?)),
        problem: row.opt_text("problem")?,
        message: json::read(row.str("message")?)
            .map_err(|error| Failure::unreadable(format!("the message of delivery {id}"), &error))?,
    })
}
