//! Runs: lists, one run, the driver's work list.

use std::collections::HashMap;

use nightshift_engine::store::{PageRequest, RunRecord};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use super::run_list::{self, ListFilter};
use super::{MAX_PAGE, campaign, public_id};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::row::Row;
use crate::sql::locked;
use crate::value::values;

/// The driver's work list: runs whose log is ahead of their state by an event that asks for a decision, and cancelled
/// ones without open steps, whatever their log says.
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
        concat!(
            "SELECT r.*, c.public_id AS campaign, o.public_id AS owner, s.state FROM run r \
             JOIN campaign c ON c.id = r.campaign_id LEFT JOIN server o ON o.id = r.owner_id \
             LEFT JOIN run_state s ON s.run_id = r.id WHERE ",
            $which
        )
    };
}

/// One run with its state.
pub(crate) const LOAD: &str = load!("r.public_id = $1");

/// As [`LOAD`], several; on Postgres.
pub(crate) const LOAD_MANY: &str = load!("r.public_id = ANY ($1::text[])");

/// A run to be changed.
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
    connection.fetch_query(&run_list::statement(&filter)).await?.iter().map(record).collect()
}

pub(crate) async fn load(connection: &mut Connection, id: &RunId) -> Result<RunRecord, Failure> {
    let row = connection.fetch_optional(LOAD, values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("run", id.as_str()))?)
}

/// Runs with their states by public id, on Postgres; those that do not exist are left out. One that cannot be read fails
/// alone.
pub(crate) async fn load_many(
    connection: &mut Connection,
    runs: Vec<String>,
) -> Result<HashMap<String, Result<RunRecord, Failure>>, Failure> {
    let rows = connection.fetch_all(LOAD_MANY, values![runs]).await?;
    rows.iter().map(|row| Ok((row.text("public_id")?, record(row)))).collect()
}

pub(crate) async fn to_drive(connection: &mut Connection, limit: u32) -> Result<Vec<RunId>, Failure> {
    let rows = connection.fetch_all(TO_DRIVE, values![limit.min(MAX_PAGE)]).await?;
    rows.iter().map(|row| public_id(row.str(0)?, "a run's id")).collect()
}

/// The internal key of a run that must exist.
pub(crate) async fn key_of(connection: &mut Connection, id: &str) -> Result<i64, Failure> {
    let row = connection.fetch_optional("SELECT id FROM run WHERE public_id = $1", values![id]).await?;
    row.ok_or_else(|| Failure::not_found("run", id))?.i64(0)
}

/// What an operation that changes a run has to know of it.
pub(crate) struct Head {
    pub(crate) id: i64,
    pub(crate) status: RunStatus,
}

/// Locks a run that must exist.
pub(crate) async fn head(connection: &mut Connection, run: &RunId) -> Result<Head, Failure> {
    let row = connection.fetch_optional(HEAD, values![run.as_str()]).await?;
    let row = row.ok_or_else(|| Failure::not_found("run", run.as_str()))?;
    Ok(Head { id: row.i64(0)?, status: status_of(row.str(1)?)? })
}

/// The status alone.
pub(crate) async fn status(connection: &mut Connection, id: &RunId) -> Result<RunStatus, Failure> {
    let row = connection.fetch_optional("SELECT status FROM run WHERE public_id = $1", values![id.as_str()]).await?;
    status_of(row.ok_or_else(|| Failure::not_found("run", id.as_str()))?.str(0)?)
}

/// A stored status.
pub(crate) fn status_of(text: &str) -> Result<RunStatus, Failure> {
    RunStatus::parse(text).ok_or_else(|| Failure::unreadable("the status of a run", &format!("`{text}` is none")))
}

fn record(row: &Row) -> Result<RunRecord, Failure> {
    let id = row.str("public_id")?;
    let unreadable =
        |what: &str, error: &serde_json::Error| Failure::unreadable(format!("the {what} of run {id}"), error);
    let state = row.opt_str("state")?.map(json::read).transpose().map_err(|error| unreadable("state", &error))?;
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
