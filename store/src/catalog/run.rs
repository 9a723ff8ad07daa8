//! Runs: lists, single runs, and the driver's work list.

use std::collections::HashMap;

use nightshift_engine::store::{PageRequest, RunRecord};
use nightshift_engine::workflow::{StatePart, StoredState};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use super::run_list::{self, ListFilter};
use super::{MAX_PAGE, campaign, public_id};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::{from_stored, to_stored};
use crate::row::Row;
use crate::sql::locked;
use crate::value::values;

/// The driver's work list: runs with an unfolded event that requires a decision, and cancelled runs without open steps.
pub(crate) const TO_DRIVE: &str = "SELECT public_id FROM ( \
       SELECT id, public_id FROM run \
        WHERE to_drive = 1 \
       UNION \
       SELECT id, public_id FROM run \
        WHERE status = 'cancelling' \
          AND NOT EXISTS (SELECT 1 FROM step WHERE run_id = run.id AND status IN ('scheduled', 'leased'))) AS wanted \
     ORDER BY id LIMIT $1";

macro_rules! load {
    ($which:literal) => {
        load!($which, "")
    };
    ($which:literal, $which_parts:literal) => {
        concat!(
            "SELECT r.*, c.public_id AS campaign, o.public_id AS owner, s.state, p.field, p.number, p.value FROM run r \
             JOIN campaign c ON c.id = r.campaign_id LEFT JOIN server o ON o.id = r.owner_id \
             LEFT JOIN run_state s ON s.run_id = r.id LEFT JOIN run_part p ON p.run_id = r.id",
            $which_parts,
            " WHERE ",
            $which,
            " ORDER BY r.id, p.field, p.number"
        )
    };
}

/// One run with its state, with a row per part. A single statement gives a consistent snapshot of head and parts.
pub(crate) const LOAD: &str = load!("r.public_id = $1");

/// One run with the head of its state and the parts that changed after a revision. See [`LOAD`].
pub(crate) const LOAD_CHANGED: &str = load!("r.public_id = $1", " AND p.revision > $2");

/// Several runs, on Postgres. See [`LOAD`].
pub(crate) const LOAD_MANY: &str = load!("r.public_id = ANY ($1::text[])");

/// A run, locked.
const HEAD: Sql = locked!("SELECT r.id, r.status FROM run r WHERE r.public_id = $1", "r");

pub(crate) async fn list(
    connection: &mut Connection,
    campaign: Option<&CampaignId>,
    status: Option<RunStatus>,
    page: &PageRequest,
) -> Result<Vec<RunRecord>, Failure> {
    let campaign_id = match campaign {
        None => None,
        Some(id) => Some(campaign::key_of(connection, id.as_str()).await?),
    };
    let after_id = match &page.before {
        None => None,
        Some(id) => Some(key_of(connection, id).await?),
    };
    let filter = ListFilter { campaign_id, status, after_id, limit: page.limit.min(MAX_PAGE).into() };
    connection.fetch_query(&run_list::statement(&filter)).await?.iter().map(|row| record(row, Vec::new())).collect()
}

pub(crate) async fn load(connection: &mut Connection, id: &RunId) -> Result<RunRecord, Failure> {
    let rows = connection.fetch_all(LOAD, values![id.as_str()]).await?;
    if rows.is_empty() {
        return Err(Failure::not_found("run", id.as_str()));
    }
    with_parts(&rows)
}

/// Returns a run, without its state, and the head of its state with the parts that changed after a revision.
pub(crate) async fn load_changed(
    connection: &mut Connection,
    id: &RunId,
    revision: u64,
) -> Result<(RunRecord, Option<StoredState>), Failure> {
    let rows = connection.fetch_all(LOAD_CHANGED, values![id.as_str(), to_stored(revision)]).await?;
    let first = rows.first().ok_or_else(|| Failure::not_found("run", id.as_str()))?;
    let parts = rows.iter().filter_map(|row| part(row).transpose()).collect::<Result<_, _>>()?;
    let mut record = record(first, Vec::new())?;
    let state = record.state.take().map(|head| StoredState { head, parts });
    Ok((record, state))
}

/// Returns runs with their states by public id, on Postgres. Missing runs are skipped. An unreadable run does not fail
/// the others.
pub(crate) async fn load_many(
    connection: &mut Connection,
    runs: Vec<String>,
) -> Result<HashMap<String, Result<RunRecord, Failure>>, Failure> {
    let rows = connection.fetch_all(LOAD_MANY, values![runs]).await?;
    let mut found = HashMap::new();
    let mut rest = rows.as_slice();
    while let Some(first) = rest.first() {
        let id = first.i64("id")?;
        let count = rest.iter().take_while(|row| row.i64("id").is_ok_and(|other| other == id)).count();
        let (of_run, others) = rest.split_at(count);
        found.insert(first.text("public_id")?, with_parts(of_run));
        rest = others;
    }
    Ok(found)
}

pub(crate) async fn to_drive(connection: &mut Connection, limit: u32) -> Result<Vec<RunId>, Failure> {
    let rows = connection.fetch_all(TO_DRIVE, values![limit.min(MAX_PAGE)]).await?;
    rows.iter().map(|row| public_id(row.str(0)?, "a run's id")).collect()
}

/// Returns the internal key of an existing run.
pub(crate) async fn key_of(connection: &mut Connection, id: &str) -> Result<i64, Failure> {
    let row = connection.fetch_optional("SELECT id FROM run WHERE public_id = $1", values![id]).await?;
    row.ok_or_else(|| Failure::not_found("run", id))?.i64(0)
}

/// The head of a run, for operations that change it.
pub(crate) struct Head {
    pub(crate) id: i64,
    pub(crate) status: RunStatus,
}

/// Locks an existing run.
pub(crate) async fn head(connection: &mut Connection, run: &RunId) -> Result<Head, Failure> {
    let row = connection.fetch_optional(HEAD, values![run.as_str()]).await?;
    let row = row.ok_or_else(|| Failure::not_found("run", run.as_str()))?;
    Ok(Head { id: row.i64(0)?, status: status_of(row.str(1)?)? })
}

/// Returns the status alone.
pub(crate) async fn status(connection: &mut Connection, id: &RunId) -> Result<RunStatus, Failure> {
    let row = connection.fetch_optional("SELECT status FROM run WHERE public_id = $1", values![id.as_str()]).await?;
    status_of(row.ok_or_else(|| Failure::not_found("run", id.as_str()))?.str(0)?)
}

/// Parses a stored status.
pub(crate) fn status_of(text: &str) -> Result<RunStatus, Failure> {
    RunStatus::parse(text).ok_or_else(|| Failure::unreadable("the status of a run", &format!("`{text}` is none")))
}

/// Builds a run from its rows, one per part of its state.
fn with_parts(rows: &[Row]) -> Result<RunRecord, Failure> {
    let mut parts = Vec::new();
    for row in rows {
        let Some(part) = part(row)? else { continue };
        let before = parts.last().filter(|last: &&StatePart| last.field == part.field).map_or(0, |last| last.number);
        if part.number > 0 && part.number != before + 1 {
            let what = format!("the state of run {}", row.str("public_id").unwrap_or_default());
            return Err(Failure::unreadable(what, &format!("the part {} {} is missing", part.field, before + 1)));
        }
        parts.push(part);
    }
    let first = rows.first().ok_or_else(|| Failure::unreadable("a run", &"it has no row"))?;
    record(first, parts)
}

/// Returns the part of a state in this row, if it has one.
fn part(row: &Row) -> Result<Option<StatePart>, Failure> {
    let (Some(field), Some(text)) = (row.opt_str("field")?, row.opt_str("value")?) else { return Ok(None) };
    let number = u32::try_from(row.i64("number")?).unwrap_or(u32::MAX);
    let value = json::read(text).map_err(|error| {
        let run = row.str("public_id").unwrap_or_default();
        Failure::unreadable(format!("the part {field} {number} of the state of run {run}"), &error)
    })?;
    Ok(Some(StatePart { field: field.to_owned(), number, value }))
}

fn record(row: &Row, parts: Vec<StatePart>) -> Result<RunRecord, Failure> {
    let id = row.str("public_id")?;
    let unreadable =
        |what: &str, error: &serde_json::Error| Failure::unreadable(format!("the {what} of run {id}"), error);
    let state_parts = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let head = row.opt_str("state")?.map(json::read).transpose().map_err(|error| unreadable("state", &error))?;
    let state = head.map(|head| StoredState { head, parts }.document());
    let digest = json::read(row.str("digest")?).map_err(|error| unreadable("digest", &error))?;
    let failure: Option<StepFailure> =
        row.opt_str("failure")?.map(json::read).transpose().map_err(|error| unreadable("failure", &error))?;
    let awaits: Option<Vec<String>> = row
        .opt_str("awaits")?
        .map(json::read)
        .transpose()
        .map_err(|error| unreadable("list of awaited signals", &error))?;
    Ok(RunRecord {
        id: public_id(id, "a run's id")?,
        campaign: public_id(row.str("campaign")?, "a campaign's id")?,
        status: status_of(row.str("status")?)?,
        revision: from_stored(row.i64("revision")?),
        state,
        state_parts,
        folded_seq: from_stored(row.i64("folded_seq")?),
        last_seq: from_stored(row.i64("last_seq")?),
        digest,
        failure,
        owner: row.opt_str("owner")?.map(|owner| public_id(owner, "a server's id")).transpose()?,
        owner_epoch: from_stored(row.i64("owner_epoch")?),
        priority: campaign::priority(row.i64("priority")?),
        awaits: awaits.unwrap_or_default(),
        created_at: TimestampMs(row.i64("created_at_ms")?),
        finished_at: row.opt_i64("finished_at_ms")?.map(TimestampMs),
    })
}
