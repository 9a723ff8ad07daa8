//! Saved views.

use nightshift_engine::store::{PageRequest, Placed};
use nightshift_protocol::api::SavedView;
use nightshift_protocol::id::SavedViewId;
use nightshift_protocol::time::TimestampMs;
use sea_query::{Expr, ExprTrait};

use super::{placed, rows_of, select};
use crate::catalog::public_id;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

const COLUMNS: &[&str] = &["public_id", "name", "page", "query", "owner", "shared", "created_at_ms", "edited_at_ms"];

pub(crate) async fn add(transaction: &mut Transaction<'_>, view: &SavedView, limit: u32) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let sql = "SELECT COUNT(*) AS many FROM saved_view WHERE owner = $1";
    let many = connection.fetch_one(sql, values![json::clean(&view.owner)]).await?.i64(0)?;
    if many >= i64::from(limit) {
        let message = format!("{} has {many} views, which is the maximum: delete one that is not needed", view.owner);
        return Err(Failure::refused("view.too_many", message));
    }
    let sql = "INSERT INTO saved_view (public_id, name, page, query, owner, shared, created_at_ms) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (public_id) DO NOTHING";
    let values = values![
        view.id.as_str(),
        json::clean(&view.name),
        json::clean(&view.page),
        json::clean(&view.query),
        json::clean(&view.owner),
        view.shared,
        view.created_at.0
    ];
    connection.execute(sql, values).await?;
    Ok(())
}

pub(crate) async fn list(
    connection: &mut Connection,
    owner: &str,
    of_page: Option<&str>,
    page: &PageRequest,
) -> Result<Vec<Placed<SavedView>>, Failure> {
    let mut statement = select("saved_view", COLUMNS);
    statement.and_where(Expr::col("owner").eq(json::clean(owner).into_owned()).or(Expr::col("shared").eq(1)));
    if let Some(of_page) = of_page {
        statement.and_where(Expr::col("page").eq(json::clean(of_page).into_owned()));
    }
    let rows = rows_of(connection, statement, page).await?;
    rows.iter().map(|row| placed(row, record(row)?)).collect()
}

pub(crate) async fn load(connection: &mut Connection, id: &SavedViewId) -> Result<SavedView, Failure> {
    let sql = "SELECT public_id, name, page, query, owner, shared, created_at_ms, edited_at_ms FROM saved_view \
               WHERE public_id = $1";
    let row = connection.fetch_optional(sql, values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("view", id.as_str()))?)
}

pub(crate) async fn edit(transaction: &mut Transaction<'_>, view: &SavedView) -> Result<(), Failure> {
    let sql = "UPDATE saved_view SET name = $2, page = $3, query = $4, shared = $5, edited_at_ms = $6 \
               WHERE public_id = $1";
    let values = values![
        view.id.as_str(),
        json::clean(&view.name),
        json::clean(&view.page),
        json::clean(&view.query),
        view.shared,
        view.edited_at.map(|at| at.0)
    ];
    let changed = transaction.connection.execute(sql, values).await?;
    if changed == 0 { Err(Failure::not_found("view", view.id.as_str())) } else { Ok(()) }
}

pub(crate) async fn delete(transaction: &mut Transaction<'_>, id: &SavedViewId) -> Result<(), Failure> {
    transaction.connection.execute("DELETE FROM saved_view WHERE public_id = $1", values![id.as_str()]).await?;
    Ok(())
}

fn record(row: &Row) -> Result<SavedView, Failure> {
    Ok(SavedView {
        id: public_id(row.str("public_id")?, "a view's id")?,
        name: row.text("name")?,
        page: row.text("page")?,
        query: row.text("query")?,
        owner: row.text("owner")?,
        shared: row.flag("shared")?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        edited_at: row.opt_i64("edited_at_ms")?.map(TimestampMs),
    })
}
