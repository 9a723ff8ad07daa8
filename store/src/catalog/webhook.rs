//! Webhooks. Their deliveries are in `delivery.rs`.

pub(crate) mod delivery;

use nightshift_engine::store::{Placed, RunMark, WebhookRecord};
use nightshift_protocol::api::{Webhook, WebhookEvent};
use nightshift_protocol::id::WebhookId;
use nightshift_protocol::time::TimestampMs;

use super::{MAX_PAGE, public_id, watch};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

pub(crate) async fn create(
    transaction: &mut Transaction<'_>,
    webhook: &WebhookRecord,
    limit: u32,
) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let many = connection.fetch_one("SELECT COUNT(*) AS many FROM webhook", values![]).await?.i64(0)?;
    if many >= i64::from(limit) {
        let message = format!("{many} webhooks are the maximum: delete one that is not needed");
        return Err(Failure::refused("webhook.too_many", message));
    }
    let view = &webhook.view;
    let events: Vec<&str> = view.events.iter().map(|event| event.as_str()).collect();
    let sql = "INSERT INTO webhook (public_id, url, secret, events, campaign, allow_private, author, created_at_ms) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (public_id) DO NOTHING";
    let values = values![
        view.id.as_str(),
        json::clean(&view.url),
        json::clean(&webhook.secret),
        events.join(","),
        view.campaign.as_ref().map(ToString::to_string),
        view.allow_private,
        json::clean(&view.author),
        view.created_at.0
    ];
    connection.execute(sql, values).await?;
    Ok(())
}

pub(crate) async fn list(connection: &mut Connection) -> Result<Vec<WebhookRecord>, Failure> {
    let sql = "SELECT public_id, url, secret, events, campaign, allow_private, author, created_at_ms FROM webhook \
               ORDER BY id DESC LIMIT $1";
    connection.fetch_all(sql, values![MAX_PAGE]).await?.iter().map(record).collect()
}

pub(crate) async fn delete(transaction: &mut Transaction<'_>, id: &WebhookId) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let key = key_of(connection, id).await?;
    connection.execute("DELETE FROM webhook_delivery WHERE webhook_id = $1", values![key]).await?;
    connection.execute("DELETE FROM webhook WHERE id = $1", values![key]).await?;
    Ok(())
}

/// Returns the internal key of an existing webhook.
async fn key_of(connection: &mut Connection, id: &WebhookId) -> Result<i64, Failure> {
    let row = connection.fetch_optional("SELECT id FROM webhook WHERE public_id = $1", values![id.as_str()]).await?;
    row.ok_or_else(|| Failure::not_found("webhook", id.as_str()))?.i64(0)
}

pub(crate) async fn runs_to_tell(
    connection: &mut Connection,
    ended_after: TimestampMs,
    after: u64,
    limit: u32,
) -> Result<Vec<Placed<RunMark>>, Failure> {
    let sql = "SELECT r.id, r.public_id, c.public_id AS campaign, r.status, r.revision, r.last_seq, r.digest, r.awaits, \
                      r.failure, r.finished_at_ms \
               FROM run r JOIN campaign c ON c.id = r.campaign_id \
               WHERE (r.finished_at_ms IS NULL OR r.finished_at_ms >= $1) AND r.id > $2 ORDER BY r.id LIMIT $3";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = connection.fetch_all(sql, values![ended_after.0, after, limit.min(MAX_PAGE)]).await?;
    rows.iter().map(|row| Ok(Placed { place: from_stored(row.i64("id")?), item: watch::mark(row)? })).collect()
}

fn record(row: &Row) -> Result<WebhookRecord, Failure> {
    let events = row.str("events")?.split(',').filter(|name| !name.is_empty());
    let events = events
        .map(|name| {
            WebhookEvent::parse(name)
                .ok_or_else(|| Failure::unreadable("an event of a webhook", &format!("`{name}` is none")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let view = Webhook {
        id: public_id(row.str("public_id")?, "a webhook's id")?,
        url: row.text("url")?,
        events,
        campaign: row.opt_str("campaign")?.map(|id| public_id(id, "a campaign's id")).transpose()?,
        allow_private: row.flag("allow_private")?,
        author: row.text("author")?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
    };
    Ok(WebhookRecord { view, secret: row.text("secret")? })
}
