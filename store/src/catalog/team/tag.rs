//! Tags.

use nightshift_engine::store::{Among, PageRequest, Placed};
use nightshift_protocol::api::{Tag, Target};
use nightshift_protocol::time::TimestampMs;
use sea_query::{Expr, ExprTrait};

use super::{keys_of, placed, rows_among, select, target};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::page::MAX_PAGE;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

const COLUMNS: &[&str] = &["target", "tag", "author", "at_ms"];

pub(crate) async fn change(
    transaction: &mut Transaction<'_>,
    add: &[Tag],
    remove: &[(Target, String)],
    limit: u32,
) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    for (target, tag) in remove {
        let sql = "DELETE FROM tag WHERE target = $1 AND tag = $2";
        connection.execute(sql, values![target.to_string(), json::clean(tag)]).await?;
    }
    for tag in add {
        let keys = keys_of(connection, &tag.target).await?;
        let sql = "INSERT INTO tag (target, tag, campaign_id, run_id, author, at_ms) VALUES ($1, $2, $3, $4, $5, $6) \
                   ON CONFLICT (target, tag) DO NOTHING";
        let values = values![
            tag.target.to_string(),
            json::clean(&tag.tag),
            keys.campaign_id,
            keys.run_id,
            json::clean(&tag.author),
            tag.at.0
        ];
        connection.execute(sql, values).await?;
    }
    if let Some(tag) = add.first() {
        let sql = "SELECT COUNT(*) AS many FROM tag WHERE target = $1";
        let many = connection.fetch_one(sql, values![tag.target.to_string()]).await?.i64(0)?;
        if many > i64::from(limit) {
            let message = format!("{} would have {many} tags, and {limit} is the maximum: remove some", tag.target);
            return Err(Failure::refused("tag.too_many", message));
        }
    }
    Ok(())
}

pub(crate) async fn list(
    connection: &mut Connection,
    among: &Among,
    page: &PageRequest,
) -> Result<Vec<Placed<Tag>>, Failure> {
    let mut statement = select("tag", COLUMNS);
    if let Some(tag) = &among.tag {
        statement.and_where(Expr::col("tag").eq(json::clean(tag).into_owned()));
    }
    let rows = rows_among(connection, statement, among, page).await?;
    rows.iter().map(|row| placed(row, record(row)?)).collect()
}

pub(crate) async fn names(connection: &mut Connection, limit: u32) -> Result<Vec<(String, u64)>, Failure> {
    let sql = "SELECT tag, COUNT(*) AS many FROM tag GROUP BY tag ORDER BY many DESC, tag LIMIT $1";
    let rows = connection.fetch_all(sql, values![Ord::min(limit, MAX_PAGE)]).await?;
    rows.iter().map(|row| Ok((row.text(0)?, from_stored(row.i64(1)?)))).collect()
}

fn record(row: &Row) -> Result<Tag, Failure> {
    Ok(Tag {
        target: target(row)?,
        tag: row.text("tag")?,
        author: row.text("author")?,
        at: TimestampMs(row.i64("at_ms")?),
    })
}
