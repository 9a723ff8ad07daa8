//! Pins.

use nightshift_engine::store::{Among, PageRequest, Placed};
use nightshift_protocol::api::{Pin, Target};
use nightshift_protocol::time::TimestampMs;
use sea_query::{Expr, ExprTrait, Query, SelectStatement};

use super::{keys_of, placed, rows_among, target};
use crate::catalog::public_id;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

pub(crate) async fn set(transaction: &mut Transaction<'_>, pin: &Pin) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let keys = keys_of(connection, &pin.target).await?;
    let sql = "INSERT INTO pin (target, campaign_id, run_id, label, author, at_ms) VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (target) DO UPDATE SET label = excluded.label, author = excluded.author, at_ms = excluded.at_ms";
    let values = values![
        pin.target.to_string(),
        keys.campaign_id,
        keys.run_id,
        json::clean(&pin.label),
        json::clean(&pin.author),
        pin.at.0
    ];
    connection.execute(sql, values).await?;
    Ok(())
}

pub(crate) async fn remove(transaction: &mut Transaction<'_>, target: &Target) -> Result<(), Failure> {
    transaction.connection.execute("DELETE FROM pin WHERE target = $1", values![target.to_string()]).await?;
    Ok(())
}

pub(crate) async fn list(
    connection: &mut Connection,
    among: &Among,
    page: &PageRequest,
) -> Result<Vec<Placed<Pin>>, Failure> {
    let rows = rows_among(connection, statement(), among, page).await?;
    rows.iter().map(|row| placed(row, record(row)?)).collect()
}

fn statement() -> SelectStatement {
    let mut campaign = Query::select();
    campaign.column(("campaign", "public_id")).from("campaign");
    campaign.and_where(Expr::col(("campaign", "id")).equals(("pin", "campaign_id")));
    let mut statement = super::select("pin", &["target", "label", "author", "at_ms"]);
    statement.expr_as(sea_query::SimpleExpr::SubQuery(None, Box::new(campaign.into())), "campaign");
    statement
}

fn record(row: &Row) -> Result<Pin, Failure> {
    Ok(Pin {
        target: target(row)?,
        campaign: public_id(row.str("campaign")?, "a campaign's id")?,
        label: row.text("label")?,
        author: row.text("author")?,
        at: TimestampMs(row.i64("at_ms")?),
    })
}
