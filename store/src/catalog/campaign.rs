//! Creates, lists and loads campaigns.

use std::collections::BTreeSet;

use nightshift_engine::event::Event;
use nightshift_engine::store::{
    CampaignRecord, ChangedRun, CreatedCampaign, NewCampaign, NewRun, Notice, PageRequest, RunRecord,
};
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::idempotency::Key;
use super::{MAX_PAGE, public_id, server};
use crate::connection::{Connection, Sql};
use crate::created::Created;
use crate::failure::Failure;
use crate::json;
use crate::number::{from_stored, to_stored};
use crate::row::Row;
use crate::scheduling::event_text::artifact_hashes;
use crate::sql::{any_of, from_rows};
use crate::transaction::Transaction;
use crate::value::values;

/// Maximum number of runs per campaign.
pub const MAX_RUNS_PER_CAMPAIGN: usize = 10_000;
/// Runs stored per statement, which bounds the memory of a statement.
const RUNS_PER_STATEMENT: usize = 500;

/// Selects campaigns with their runs by status. The tail selects which.
macro_rules! campaign_query {
    ($tail:literal) => {
        concat!(
            "SELECT c.public_id, c.name, c.spec, c.created_at_ms, c.schedule, c.priority, c.weight, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'running') AS running, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'paused') AS paused, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'cancelling') AS cancelling, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'completed') AS completed, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'failed') AS failed, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'cancelled') AS cancelled ",
            "FROM campaign c ",
            $tail
        )
    };
}

/// A page of the list.
pub(crate) const LIST: &str = campaign_query!("WHERE c.id < $1 ORDER BY c.id DESC LIMIT $2");

/// Campaigns by id.
const OF_IDS: Sql = any_of!(campaign_query!("WHERE c.public_id"), "$1", " ORDER BY c.id DESC");

/// Stores the budget lines of a campaign.
const INSERT_BUDGET: Sql = from_rows!(
    "INSERT INTO budget (campaign_id, resource, cap) SELECT $2, d.value ->> 0, CAST(d.value ->> 1 AS BIGINT) FROM ",
    " WHERE true"
);

/// Stores runs, in their order.
const INSERT_RUNS: Sql = from_rows!(
    "INSERT INTO run (public_id, campaign_id, status, priority, owner_id, owner_epoch, last_seq, wake_seq, digest, \
                      created_at_ms, state_format) \
     SELECT d.value ->> 0, $2, 'running', $3, $4, $5, 1, 1, d.value ->> 1, $6, \
            coalesce((SELECT s.state_format FROM server s WHERE s.id = $4), 1) FROM ",
    " WHERE true ORDER BY d.key"
);

/// Stores the first event of runs.
const INSERT_FIRST_EVENTS: Sql = from_rows!(
    "INSERT INTO event (run_id, seq, at_ms, kind, body) SELECT run.id, 1, $2, 'run_created', d.value ->> 1 FROM ",
    " JOIN run ON run.public_id = d.value ->> 0"
);

/// Stores the references of runs to artifacts.
pub(crate) const INSERT_USES: Sql = from_rows!(
    "INSERT INTO artifact_use (run_id, hash) SELECT run.id, d.value ->> 1 FROM ",
    " JOIN run ON run.public_id = d.value ->> 0 WHERE true ON CONFLICT DO NOTHING"
);

pub(crate) async fn create(transaction: &mut Transaction<'_>, new: &NewCampaign) -> Result<CreatedCampaign, Failure> {
    if new.runs.len() > MAX_RUNS_PER_CAMPAIGN {
        let message = format!(
            "a campaign has at most {MAX_RUNS_PER_CAMPAIGN} runs, this one {}: make several campaigns of it",
            new.runs.len()
        );
        return Err(Failure::refused("campaign.too_many_runs", message));
    }
    let key = new.idempotency.as_ref().map(|(key, digest)| Key::new("campaign", key, digest));
    let connection = &mut *transaction.connection;
    if let Some(key) = &key {
        if let Some(answer) = key.find(connection).await? {
            return existed(connection, &answer).await;
        }
        if !key.insert(connection, new.id.as_str(), new.at).await? {
            let answer = key.find(connection).await?.ok_or_else(|| Failure::unreadable("a key", &"it is gone"))?;
            return existed(connection, &answer).await;
        }
    }
    let inserted = connection
        .fetch_optional(
            "INSERT INTO campaign (public_id, name, spec, created_at_ms, schedule, priority, weight) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (public_id) DO NOTHING RETURNING id",
            values![
                new.id.as_str(),
                json::clean(&new.name),
                json::write(&new.spec)?,
                new.at.0,
                new.schedule.as_ref().map(json::write).transpose()?,
                i64::from(new.priority),
                i64::from(new.weight.max(1))
            ],
        )
        .await?;
    // The id alone identifies a repeated call whose first answer was lost.
    let Some(inserted) = inserted else { return existed(connection, new.id.as_str()).await };
    let campaign_id = inserted.i64(0)?;
    let vtime = transaction.memory.virtual_now();
    connection
        .execute("INSERT INTO campaign_clock (campaign_id, vtime) VALUES ($1, $2)", values![campaign_id, vtime])
        .await?;
    insert_budget(connection, campaign_id, &new.budget).await?;
    let owner_id = match &new.owner {
        None => None,
        Some(server) => Some(server::key_of(connection, server).await?),
    };
    for runs in new.runs.chunks(RUNS_PER_STATEMENT) {
        let created = create_runs(connection, campaign_id, owner_id, new, runs).await?;
        transaction.created.extend(created);
    }
    for run in &new.runs {
        transaction.notice(Notice::RunChanged(ChangedRun::undecided(run.id.clone(), new.owner.clone())));
    }
    let runs = new.runs.iter().map(|run| run.id.clone()).collect();
    Ok(CreatedCampaign { id: new.id.clone(), runs, existed: false })
}

/// Stores one line per resource, with or without a cap, because usage is always counted.
async fn insert_budget(connection: &mut Connection, campaign_id: i64, caps: &BudgetCaps) -> Result<(), Failure> {
    let lines: Vec<(&str, Option<i64>)> =
        Resource::ALL.into_iter().map(|resource| (resource.as_str(), caps.of(resource).map(to_stored))).collect();
    connection.execute(INSERT_BUDGET, values![serde_json::to_string(&lines)?, campaign_id]).await?;
    Ok(())
}

async fn create_runs(
    connection: &mut Connection,
    campaign_id: i64,
    owner_id: Option<i64>,
    new: &NewCampaign,
    runs: &[NewRun],
) -> Result<Vec<Created>, Failure> {
    let mut created = Vec::with_capacity(runs.len());
    let mut uses = BTreeSet::new();
    for run in runs {
        let digest = json::write(&run.digest)?;
        let body = json::write(&Event::RunCreated { input: run.input.clone() })?;
        uses.extend(artifact_hashes(&body).map(|hash| (run.id.as_str(), hash)));
        created.push(Created { run: as_created(new, run), digest, body });
    }
    let rows: Vec<(&str, &str)> = created.iter().map(|run| (run.run.id.as_str(), run.digest.as_str())).collect();
    let events: Vec<(&str, &str)> = created.iter().map(|run| (run.run.id.as_str(), run.body.as_str())).collect();
    let epoch = i64::from(owner_id.is_some());
    connection
        .execute(
            INSERT_RUNS,
            values![serde_json::to_string(&rows)?, campaign_id, i64::from(new.priority), owner_id, epoch, new.at.0],
        )
        .await?;
    connection.execute(INSERT_FIRST_EVENTS, values![serde_json::to_string(&events)?, new.at.0]).await?;
    if !uses.is_empty() {
        connection.execute(INSERT_USES, values![serde_json::to_string(&uses)?]).await?;
    }
    Ok(created)
}

/// Returns a run as [`INSERT_RUNS`] stores it, without its digest, which is cached as text.
fn as_created(new: &NewCampaign, run: &NewRun) -> RunRecord {
    RunRecord {
        id: run.id.clone(),
        campaign: new.id.clone(),
        status: RunStatus::Running,
        revision: 0,
        state: None,
        state_parts: 0,
        folded_seq: 0,
        last_seq: 1,
        digest: Value::Null,
        failure: None,
        owner: new.owner.clone(),
        owner_epoch: u64::from(new.owner.is_some()),
        priority: new.priority,
        awaits: Vec::new(),
        created_at: new.at,
        finished_at: None,
    }
}

async fn existed(connection: &mut Connection, id: &str) -> Result<CreatedCampaign, Failure> {
    let campaign_id = key_of(connection, id).await?;
    let rows = connection
        .fetch_all("SELECT public_id FROM run WHERE campaign_id = $1 ORDER BY id", values![campaign_id])
        .await?;
    let runs = rows.iter().map(|row| public_id::<RunId>(row.str(0)?, "a run's id")).collect::<Result<_, _>>()?;
    Ok(CreatedCampaign { id: public_id(id, "a campaign's id")?, runs, existed: true })
}

pub(crate) async fn list(connection: &mut Connection, page: &PageRequest) -> Result<Vec<CampaignRecord>, Failure> {
    let before = match &page.before {
        None => i64::MAX,
        Some(id) => key_of(connection, id).await?,
    };
    let rows = connection.fetch_all(LIST, values![before, page.limit.min(MAX_PAGE)]).await?;
    rows.iter().map(record).collect()
}

pub(crate) async fn load(connection: &mut Connection, id: &CampaignId) -> Result<CampaignRecord, Failure> {
    let row = connection.fetch_optional(campaign_query!("WHERE c.public_id = $1"), values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("campaign", id.as_str()))?)
}

/// Returns these campaigns, newest first. Missing ones are skipped.
pub(crate) async fn of_ids(connection: &mut Connection, ids: &[CampaignId]) -> Result<Vec<CampaignRecord>, Failure> {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let rows = connection.fetch_all(OF_IDS, values![ids]).await?;
    rows.iter().map(record).collect()
}

/// Returns the internal key of an existing campaign.
pub(crate) async fn key_of(connection: &mut Connection, id: &str) -> Result<i64, Failure> {
    let row = connection.fetch_optional("SELECT id FROM campaign WHERE public_id = $1", values![id]).await?;
    row.ok_or_else(|| Failure::not_found("campaign", id))?.i64(0)
}

fn record(row: &Row) -> Result<CampaignRecord, Failure> {
    let id = row.str("public_id")?;
    let unreadable =
        |what: &str, error: &serde_json::Error| Failure::unreadable(format!("the {what} of campaign {id}"), error);
    let spec = json::read(row.str("spec")?).map_err(|error| unreadable("request", &error))?;
    let schedule =
        row.opt_str("schedule")?.map(json::read).transpose().map_err(|error| unreadable("schedule", &error))?;
    let mut runs = RunCounts::default();
    for status in RunStatus::ALL {
        runs.add(status, from_stored(row.i64(status.as_str())?));
    }
    Ok(CampaignRecord {
        id: public_id(id, "a campaign's id")?,
        name: row.text("name")?,
        spec,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        schedule,
        priority: priority(row.i64("priority")?),
        weight: crate::number::count_from_stored(row.i64("weight")?).max(1),
        runs,
    })
}

/// Converts a stored priority.
pub(crate) fn priority(stored: i64) -> i32 {
    i32::try_from(stored).unwrap_or(if stored < 0 { i32::MIN } else { i32::MAX })
}
