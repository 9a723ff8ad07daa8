//! Annotations of people on campaigns, runs and attempts: one file per noun. This file holds the common parts: the keys
//! of a target, and lists, newest first.

pub(crate) mod pin;
pub(crate) mod remark;
pub(crate) mod share;
pub(crate) mod tag;
pub(crate) mod view;

use nightshift_engine::store::{Among, PageRequest, Placed};
use nightshift_protocol::api::Target;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::CampaignId;
use sea_query::{Expr, ExprTrait, Order, Query, SelectStatement};

use super::{MAX_PAGE, public_id};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::number::from_stored;
use crate::row::Row;
use crate::value::values;

/// The keys of a target: its campaign and, unless it is the campaign itself, its run.
pub(crate) struct Keys {
    pub(crate) campaign_id: i64,
    pub(crate) run_id: Option<i64>,
    pub(crate) campaign: CampaignId,
}

/// Returns the keys of an existing target.
pub(crate) async fn keys_of(connection: &mut Connection, target: &Target) -> Result<Keys, Failure> {
    let (sql, id, noun) = match target {
        Target::Campaign(campaign) => {
            ("SELECT id, NULL AS run_id, public_id FROM campaign WHERE public_id = $1", campaign.as_str(), "campaign")
        }
        Target::Run(run) | Target::Attempt(run, _) => (
            "SELECT c.id, r.id AS run_id, c.public_id FROM run r JOIN campaign c ON c.id = r.campaign_id \
             WHERE r.public_id = $1",
            run.as_str(),
            "run",
        ),
    };
    let row = connection.fetch_optional(sql, values![id]).await?.ok_or_else(|| Failure::not_found(noun, id))?;
    let run_id = if matches!(target, Target::Campaign(_)) { None } else { Some(row.i64("run_id")?) };
    Ok(Keys { campaign_id: row.i64("id")?, run_id, campaign: public_id(row.str("public_id")?, "a campaign's id")? })
}

pub(crate) async fn campaign_of(connection: &mut Connection, target: &Target) -> Result<CampaignId, Failure> {
    Ok(keys_of(connection, target).await?.campaign)
}

/// Returns whether a run of the target references this artifact.
pub(crate) async fn names_artifact(
    connection: &mut Connection,
    target: &Target,
    hash: &ArtifactHash,
) -> Result<bool, Failure> {
    let keys = keys_of(connection, target).await?;
    let row = if let Some(run_id) = keys.run_id {
        let sql = "SELECT 1 AS one FROM artifact_use WHERE hash = $1 AND run_id = $2";
        connection.fetch_optional(sql, values![hash.to_string(), run_id]).await?
    } else {
        let sql = "SELECT 1 AS one FROM artifact_use u JOIN run r ON r.id = u.run_id \
                   WHERE u.hash = $1 AND r.campaign_id = $2 LIMIT 1";
        connection.fetch_optional(sql, values![hash.to_string(), keys.campaign_id]).await?
    };
    Ok(row.is_some())
}

/// Returns the rows of a list about some target, newest first. The table has `target`, `campaign_id` and `run_id`.
async fn rows_among(
    connection: &mut Connection,
    mut statement: SelectStatement,
    among: &Among,
    page: &PageRequest,
) -> Result<Vec<Row>, Failure> {
    if let Some(target) = &among.target {
        let keys = keys_of(connection, target).await?;
        match (among.within, target, keys.run_id) {
            (true, Target::Campaign(_), _) => {
                statement.and_where(Expr::col("campaign_id").eq(keys.campaign_id));
            }
            (true, Target::Run(_), Some(run_id)) => {
                statement.and_where(Expr::col("run_id").eq(run_id));
            }
            _ => {
                statement.and_where(Expr::col("target").eq(target.to_string()));
            }
        }
    }
    rows_of(connection, statement, page).await
}

/// Returns the rows of a list, newest first.
async fn rows_of(
    connection: &mut Connection,
    mut statement: SelectStatement,
    page: &PageRequest,
) -> Result<Vec<Row>, Failure> {
    if let Some(before) = &page.before {
        let place: i64 = before.parse().map_err(|_| Failure::not_a_cursor())?;
        statement.and_where(Expr::col("id").lt(place));
    }
    statement.order_by("id", Order::Desc).limit(Ord::min(page.limit, MAX_PAGE).into());
    connection.fetch_query(&statement).await
}

fn select(table: &'static str, columns: &'static [&'static str]) -> SelectStatement {
    let mut statement = Query::select();
    statement.column("id").columns(columns.iter().copied()).from(table);
    statement
}

fn placed<T>(row: &Row, item: T) -> Result<Placed<T>, Failure> {
    Ok(Placed { place: from_stored(row.i64("id")?), item })
}

fn target(row: &Row) -> Result<Target, Failure> {
    public_id(row.str("target")?, "what a note, tag, pin or link is about")
}
