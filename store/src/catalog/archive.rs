//! Exports a campaign as JSON rows, and imports such rows.
//!
//! The rows contain no internal keys. Transient data is omitted: leases, timers, ready ranks, reservations, owners. An
//! unfinished run is imported as paused, with its open steps as scheduled.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use nightshift_engine::store::{CampaignArchive, CollectedRows, CreatedCampaign, RowSink};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::time::TimestampMs;
use serde_json::{Map, Value};

use super::archive_tables::{Compared, Kind, TABLES, Table};
use super::archive_team::TEAM_TABLES;
use super::{campaign, public_id};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

/// Rows stored per statement.
pub(super) const ROWS_PER_STATEMENT: usize = 500;
/// Rows exported at a time.
const ROWS_AT_ONCE: usize = 500;
/// Maximum size of the rows exported at a time, in bytes. The row that exceeds it is the last one.
const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;

/// Completely stored artifacts among these hashes.
const COMPLETE: Sql = any_of!("SELECT hash FROM artifact WHERE complete = 1 AND hash", "$1", "");

/// Returns the tables in an order in which they can be stored.
fn tables() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().chain(TEAM_TABLES)
}

/// Writes a whole campaign to `sink`, from the snapshot of the caller's transaction. Memory holds only the rows of one
/// chunk at a time.
pub(crate) async fn export(connection: &mut Connection, id: &CampaignId, sink: &dyn RowSink) -> Result<(), Failure> {
    let campaign_id = campaign::key_of(connection, id.as_str()).await?;
    for table in tables() {
        let mut stored = connection.stream(table.export, values![campaign_id]).await?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = stored.next().await {
            let row = object(table, &row?)?;
            bytes += bytes_of(&row);
            rows.push(row);
            if rows.len() >= ROWS_AT_ONCE || bytes >= BYTES_AT_ONCE {
                sink.take(std::mem::take(&mut rows)).await?;
                bytes = 0;
            }
        }
        if !rows.is_empty() {
            sink.take(rows).await?;
        }
    }
    Ok(())
}

/// Returns the bytes of a row's texts, which are nearly all of its size.
fn bytes_of(row: &Value) -> usize {
    row.as_object().map_or(0, |row| row.values().filter_map(Value::as_str).map(str::len).sum())
}

/// Stores an archive.
pub(crate) async fn import(
    transaction: &mut Transaction<'_>,
    archive: &CampaignArchive,
    at: TimestampMs,
) -> Result<CreatedCampaign, Failure> {
    let rows: Vec<Value> = archive.rows.iter().cloned().map(without_transient_data).collect();
    let id = campaign_of(&rows)?;
    let runs = runs_of(&rows)?;
    let sql = "SELECT id FROM campaign WHERE public_id = $1";
    if transaction.connection.fetch_optional(sql, values![id.as_str()]).await?.is_some() {
        let stored = CollectedRows::default();
        export(transaction.connection, &id, &stored).await?;
        let stored: Vec<Value> = stored.archive()?.rows.into_iter().map(without_transient_data).collect();
        if compared_rows(&stored, &rows) == compared_rows(&rows, &rows) {
            return Ok(CreatedCampaign { id, runs, existed: true });
        }
        let message =
            format!("{id} exists already and differs from the archive: one of them has continued. Nothing was changed");
        return Err(Failure::refused("archive.differs", message));
    }
    refuse_missing_artifacts(transaction.connection, &archive.artifacts).await?;
    for table in tables() {
        let of_table: Vec<&Value> = rows.iter().filter(|row| row["table"] == table.name).collect();
        for chunk in of_table.chunks(ROWS_PER_STATEMENT) {
            insert(transaction, table, chunk).await?;
        }
    }
    let clock = "INSERT INTO campaign_clock (campaign_id, vtime) SELECT id, $2 FROM campaign WHERE public_id = $1";
    let vtime = transaction.memory.virtual_now();
    transaction.connection.execute(clock, values![id.as_str(), vtime]).await?;
    tracing::info!(campaign.id = %id, at_ms = at.0, "an archived campaign was imported");
    Ok(CreatedCampaign { id, runs, existed: false })
}

async fn insert(transaction: &mut Transaction<'_>, table: &Table, rows: &[&Value]) -> Result<(), Failure> {
    let mut lists = Vec::with_capacity(rows.len());
    let mut ids = Vec::new();
    if table.has_step_ids {
        ids = transaction.memory.step_ids(transaction.connection, rows.len()).await?;
    }
    for (index, row) in rows.iter().enumerate() {
        let mut list = columns_of(table, row)?;
        if let Some(id) = ids.get(index) {
            list.push(Value::from(*id));
        }
        lists.push(Value::Array(list));
    }
    let stored = transaction.connection.execute(table.import, values![json::write(&lists)?]).await?;
    if stored == u64::try_from(rows.len()).unwrap_or(u64::MAX) {
        return Ok(());
    }
    Err(unusable(&format!("rows of `{}` reference something that is not in it", table.name)))
}

/// Returns the columns of an archived row, in their order.
pub(super) fn columns_of(table: &Table, row: &Value) -> Result<Vec<Value>, Failure> {
    table.columns.iter().map(|(name, kind)| checked(table.name, row, name, *kind)).collect()
}

/// Returns the table of that name.
pub(super) fn table_of(name: &str) -> Result<&'static Table, Failure> {
    tables()
        .find(|table| table.name == name)
        .ok_or_else(|| Failure::unreadable("an archive", &format!("no table {name}")))
}

/// Returns the archived form of a row.
fn object(table: &Table, row: &Row) -> Result<Value, Failure> {
    let mut object = Map::new();
    object.insert("table".to_owned(), Value::from(table.name));
    for (name, kind) in table.columns {
        let value = match kind {
            Kind::Number => Value::from(row.i64(*name)?),
            Kind::OptNumber => Value::from(row.opt_i64(*name)?),
            Kind::Text => Value::from(row.text(*name)?),
            Kind::OptText => Value::from(row.opt_text(*name)?),
        };
        object.insert((*name).to_owned(), value);
    }
    Ok(without_transient_data(Value::Object(object)))
}

/// Removes transient data from the row.
pub(super) fn without_transient_data(mut row: Value) -> Value {
    let status = match (row["table"].as_str(), row["status"].as_str()) {
        (Some("run"), Some("running" | "cancelling")) => Some("paused"),
        (Some("step"), Some("leased")) => Some("scheduled"),
        _ => None,
    };
    if let (Some(status), Some(object)) = (status, row.as_object_mut()) {
        object.insert("status".to_owned(), Value::from(status));
    }
    row
}

/// Selects the rows that decide whether a stored campaign equals the archived one.
fn compared_rows<'a>(rows: &'a [Value], archived: &[Value]) -> Vec<&'a Value> {
    let is_archived = |name: &str| archived.iter().any(|row| row["table"] == name);
    let silent: Vec<&str> = tables()
        .filter(|table| match table.compared {
            Compared::Always => false,
            Compared::IfArchived => !is_archived(table.name),
            Compared::Never => true,
        })
        .map(|table| table.name)
        .collect();
    rows.iter().filter(|row| !silent.iter().any(|name| row["table"] == *name)).collect()
}

/// Returns a column of an archived row, after checking its type.
fn checked(table: &str, row: &Value, name: &str, kind: Kind) -> Result<Value, Failure> {
    let value = row.get(name).cloned().unwrap_or(Value::Null);
    let fits = match kind {
        Kind::Number => value.is_i64(),
        Kind::OptNumber => value.is_i64() || value.is_null(),
        Kind::Text => value.is_string(),
        Kind::OptText => value.is_string() || value.is_null(),
    };
    if fits { Ok(value) } else { Err(unusable(&format!("`{name}` of a row of `{table}` is {value}"))) }
}

fn campaign_of(rows: &[Value]) -> Result<CampaignId, Failure> {
    let mut campaigns = rows.iter().filter(|row| row["table"] == "campaign");
    let (Some(campaign), None) = (campaigns.next(), campaigns.next()) else {
        return Err(unusable("it has not exactly one campaign"));
    };
    let known: BTreeSet<&str> = tables().map(|table| table.name).collect();
    if let Some(other) = rows.iter().find(|row| !row["table"].as_str().is_some_and(|name| known.contains(name))) {
        return Err(unusable(&format!("it has rows of {}, which this release does not know", other["table"])));
    }
    let id = campaign["public_id"].as_str().unwrap_or_default();
    public_id(id, "a campaign's id").map_err(|_| unusable("its campaign has no id"))
}

fn runs_of(rows: &[Value]) -> Result<Vec<RunId>, Failure> {
    let runs = rows.iter().filter(|row| row["table"] == "run");
    runs.map(|run| {
        let id = run["public_id"].as_str().unwrap_or_default();
        public_id(id, "a run's id").map_err(|_| unusable("one of its runs has no id"))
    })
    .collect()
}

/// Refuses an archive if one of its listed artifacts is not stored. Other texts that look like hashes are ignored.
async fn refuse_missing_artifacts(connection: &mut Connection, artifacts: &[ArtifactHash]) -> Result<(), Failure> {
    match missing_artifact(connection, artifacts).await? {
        None => Ok(()),
        Some(missing) => Err(Failure::refused(
            "archive.artifact_missing",
            format!("artifact {missing} of the archive is not in the store: store its artifacts first"),
        )),
    }
}

/// Returns the first of these artifacts that is not completely stored.
pub(super) async fn missing_artifact<'a>(
    connection: &mut Connection,
    artifacts: &'a [ArtifactHash],
) -> Result<Option<&'a ArtifactHash>, Failure> {
    let hashes: Vec<String> = artifacts.iter().map(|hash| hash.as_str().to_owned()).collect();
    let rows = connection.fetch_all(COMPLETE, values![hashes]).await?;
    let stored = rows.iter().map(|row| row.text(0)).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(artifacts.iter().find(|hash| !stored.contains(hash.as_str())))
}

pub(super) fn unusable(why: &str) -> Failure {
    Failure::refused("archive.unusable", format!("the archive cannot be used: {why}. Nothing was changed"))
}
