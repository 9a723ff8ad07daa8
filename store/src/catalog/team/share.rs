//! Share links, which grant read access to one object. The store holds the hash of the secret.

use nightshift_engine::store::{PageRequest, Placed, ShareRecord};
use nightshift_protocol::api::Share;
use nightshift_protocol::id::ShareId;
use nightshift_protocol::time::TimestampMs;

use super::{keys_of, placed, rows_of, select, target};
use crate::catalog::public_id;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

const COLUMNS: &[&str] = &["public_id", "label", "target", "author", "created_at_ms", "expires_at_ms", "revoked_at_ms"];

macro_rules! share_query {
    ($tail:literal) => {
        concat!(
            "SELECT public_id, label, target, author, created_at_ms, expires_at_ms, revoked_at_ms FROM share ",
            $tail
        )
    };
}

pub(crate) async fn create(transaction: &mut Transaction<'_>, share: &ShareRecord) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let view = &share.view;
    let keys = keys_of(connection, &view.target).await?;
    let sql = "INSERT INTO share (public_id, secret_hash, label, target, campaign_id, run_id, author, created_at_ms, \
               expires_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (public_id) DO NOTHING";
    let values = values![
        view.id.as_str(),
        share.secret_hash.as_str(),
        json::clean(&view.label),
        view.target.to_string(),
        keys.campaign_id,
        keys.run_id,
        json::clean(&view.author),
        view.created_at.0,
        view.expires_at.0
    ];
    connection.execute(sql, values).await?;
    Ok(())
}

pub(crate) async fn list(connection: &mut Connection, page: &PageRequest) -> Result<Vec<Placed<Share>>, Failure> {
    let rows = rows_of(connection, select("share", COLUMNS), page).await?;
    rows.iter().map(|row| placed(row, record(row)?)).collect()
}

pub(crate) async fn load(connection: &mut Connection, id: &ShareId) -> Result<Share, Failure> {
    let row = connection.fetch_optional(share_query!("WHERE public_id = $1"), values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("share", id.as_str()))?)
}

pub(crate) async fn find(connection: &mut Connection, secret_hash: &str) -> Result<Option<Share>, Failure> {
    let row = connection.fetch_optional(share_query!("WHERE secret_hash = $1"), values![secret_hash]).await?;
    row.as_ref().map(record).transpose()
}

pub(crate) async fn revoke(transaction: &mut Transaction<'_>, id: &ShareId, at: TimestampMs) -> Result<(), Failure> {
    let sql = "UPDATE share SET revoked_at_ms = coalesce(revoked_at_ms, $2) WHERE public_id = $1";
    let found = transaction.connection.execute(sql, values![id.as_str(), at.0]).await?;
    if found == 0 { Err(Failure::not_found("share", id.as_str())) } else { Ok(()) }
}

fn record(row: &Row) -> Result<Share, Failure> {
    Ok(Share {
        id: public_id(row.str("public_id")?, "a link's id")?,
        target: target(row)?,
        label: row.text("label")?,
        author: row.text("author")?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        expires_at: TimestampMs(row.i64("expires_at_ms")?),
        revoked_at: row.opt_i64("revoked_at_ms")?.map(TimestampMs),
    })
}
