//! Reads what changed in runs, without large fields.

use std::collections::HashMap;

use nightshift_engine::store::{CampaignMark, CampaignSum, RunMark, RunStamp};
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use super::{public_id, run};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::row::Row;
use crate::sql::any_of;
use crate::value::values;

/// Unfinished runs.
const UNFINISHED: &str = "SELECT public_id, revision, last_seq FROM run \
     WHERE status IN ('running', 'paused', 'cancelling') ORDER BY id DESC LIMIT $1";
/// The newest runs.
const NEWEST: &str = "SELECT public_id, revision, last_seq FROM run ORDER BY id DESC LIMIT $1";

pub(crate) async fn marks(connection: &mut Connection, runs: &[RunId]) -> Result<Vec<RunMark>, Failure> {
    let sql = any_of!(
        "SELECT r.public_id, c.public_id AS campaign, r.status, r.revision, r.last_seq, r.digest, r.awaits, r.failure, \
                r.finished_at_ms \
         FROM run r JOIN campaign c ON c.id = r.campaign_id WHERE r.public_id",
        "$1",
        ""
    );
    let ids: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = connection.fetch_all(sql, values![ids]).await?;
    rows.iter().map(mark).collect()
}

/// Reads a run summary from a row of [`marks`].
pub(crate) fn mark(row: &Row) -> Result<RunMark, Failure> {
    let id = row.str("public_id")?;
    let unreadable = |error: &serde_json::Error| Failure::unreadable(format!("what lists show of run {id}"), error);
    let awaits: Option<Vec<String>> =
        row.opt_str("awaits")?.map(json::read).transpose().map_err(|error| unreadable(&error))?;
    let failure: Option<StepFailure> =
        row.opt_str("failure")?.map(json::read).transpose().map_err(|error| unreadable(&error))?;
    Ok(RunMark {
        run: public_id(id, "a run's id")?,
        campaign: public_id(row.str("campaign")?, "a campaign's id")?,
        status: run::status_of(row.str("status")?)?,
        revision: from_stored(row.i64("revision")?),
        last_seq: from_stored(row.i64("last_seq")?),
        digest: json::read(row.str("digest")?).map_err(|error| unreadable(&error))?,
        awaits: awaits.unwrap_or_default(),
        failure: failure.map(|failure| failure.code),
        finished_at: row.opt_i64("finished_at_ms")?.map(TimestampMs),
    })
}

pub(crate) async fn stamps(connection: &mut Connection, limit: u32) -> Result<Vec<RunStamp>, Failure> {
    let mut stamps = Vec::new();
    for sql in [UNFINISHED, NEWEST] {
        for row in connection.fetch_all(sql, values![limit]).await? {
            stamps.push(RunStamp {
                run: public_id(row.str(0)?, "a run's id")?,
                revision: from_stored(row.i64(1)?),
                last_seq: from_stored(row.i64(2)?),
            });
        }
    }
    Ok(stamps)
}

/// Counts runs by campaign and status, from the index `run_by_campaign_and_status` alone.
pub(crate) const RUNS_BY_CAMPAIGN: &str = "SELECT campaign_id, status, COUNT(*) FROM run GROUP BY campaign_id, status";

pub(crate) async fn campaigns(connection: &mut Connection) -> Result<Vec<CampaignMark>, Failure> {
    let campaigns = connection.fetch_all("SELECT id, public_id FROM campaign ORDER BY id DESC", values![]).await?;
    let mut runs: HashMap<i64, RunCounts> = HashMap::with_capacity(campaigns.len());
    for row in connection.fetch_all(RUNS_BY_CAMPAIGN, values![]).await? {
        runs.entry(row.i64(0)?).or_default().add(run::status_of(row.str(1)?)?, from_stored(row.i64(2)?));
    }
    let mark = |row: &Row| {
        let runs = runs.get(&row.i64(0)?).copied().unwrap_or_default();
        Ok(CampaignMark { campaign: public_id(row.str(1)?, "a campaign's id")?, runs })
    };
    campaigns.iter().map(mark).collect()
}

/// Two look-ups per campaign: the end of an index, and a budget line.
pub(crate) const SUMS: Sql = any_of!(
    "SELECT c.public_id, (SELECT MAX(finished_at_ms) FROM run WHERE campaign_id = c.id) AS ended_ms, \
            coalesce((SELECT used FROM budget WHERE campaign_id = c.id AND resource = 'cost_microusd'), 0) AS cost \
     FROM campaign c WHERE c.public_id",
    "$1",
    ""
);

pub(crate) async fn sums(connection: &mut Connection, campaigns: &[CampaignId]) -> Result<Vec<CampaignSum>, Failure> {
    let ids: Vec<String> = campaigns.iter().map(ToString::to_string).collect();
    let sum = |row: &Row| {
        Ok(CampaignSum {
            campaign: public_id(row.str("public_id")?, "a campaign's id")?,
            last_ended_at: row.opt_i64("ended_ms")?.map(TimestampMs),
            cost_microusd: from_stored(row.i64("cost")?),
        })
    };
    connection.fetch_all(SUMS, values![ids]).await?.iter().map(sum).collect()
}
