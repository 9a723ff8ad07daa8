//! Notes of people. The table is called `remark`, because `note` holds the knowledge notes for agents.

use nightshift_engine::store::{Among, PageRequest, Placed};
use nightshift_protocol::api::Remark;
use nightshift_protocol::id::RemarkId;
use nightshift_protocol::time::TimestampMs;

use super::{keys_of, placed, rows_among, select, target};
use crate::catalog::public_id;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

const COLUMNS: &[&str] = &["public_id", "target", "body", "author", "created_at_ms", "edited_at_ms"];

pub(crate) async fn add(transaction: &mut Transaction<'_>, remark: &Remark) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let keys = keys_of(connection, &remark.target).await?;
    let sql = "INSERT INTO remark (public_id, target, campaign_id, run_id, body, author, created_at_ms) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (public_id) DO NOTHING";
    let values = values![
        remark.id.as_str(),
        remark.target.to_string(),
        keys.campaign_id,
        keys.run_id,
        json::clean(&remark.text),
        json::clean(&remark.author),
        remark.created_at.0
    ];
    connection.execute(sql, values).await?;
    Ok(())
}

pub(crate) async fn list(
    connection: &mut Connection,
    among: &Among,
    page: &PageRequest,
) -> Result<Vec<Placed<Remark>>, Failure> {
    let rows = rows_among(connection, select("remark", COLUMNS), among, page).await?;
    rows.iter().map(|row| placed(row, record(row)?)).collect()
}

pub(crate) async fn load(connection: &mut Connection, id: &RemarkId) -> Result<Remark, Failure> {
    let sql = "SELECT public_id, target, body, author, created_at_ms, edited_at_ms FROM remark WHERE public_id = $1";
    let row = connection.fetch_optional(sql, values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("note", id.as_str()))?)
}

pub(crate) async fn edit(
    transaction: &mut Transaction<'_>,
    id: &RemarkId,
    text: &str,
    at: TimestampMs,
) -> Result<(), Failure> {
    let sql = "UPDATE remark SET body = $2, edited_at_ms = $3 WHERE public_id = $1";
    let changed = transaction.connection.execute(sql, values![id.as_str(), json::clean(text), at.0]).await?;
    if changed == 0 { Err(Failure::not_found("note", id.as_str())) } else { Ok(()) }
}

pub(crate) async fn delete(transaction: &mut Transaction<'_>, id: &RemarkId) -> Result<(), Failure> {
    transaction.connection.execute("DELETE FROM remark WHERE public_id = $1", values![id.as_str()]).await?;
    Ok(())
}

fn record(row: &Row) -> Result<Remark, Failure> {
    Ok(Remark {
        id: public_id(row.str("public_id")?, "a note's id")?,
        target: target(row)?,
        text: row.text("body")?,
        author: row.text("author")?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        edited_at: row.opt_i64("edited_at_ms")?.map(TimestampMs),
    })
}
