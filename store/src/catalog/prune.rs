//! Deletes old data: run by run, so that a log is never stored partially.

use nightshift_engine::store::Pruned;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;

use super::{MAX_PAGE, campaign, piece, public_id};
use crate::attempt::write;
use crate::connection::{Backend, Connection, Sql};
use crate::failure::Failure;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

/// Campaigns whose last run ended before a time.
pub(crate) const FINISHED: &str = "SELECT c.public_id, \
       coalesce((SELECT MAX(finished_at_ms) FROM run WHERE campaign_id = c.id), c.created_at_ms) AS ended \
     FROM campaign c \
     WHERE NOT EXISTS (SELECT 1 FROM run WHERE campaign_id = c.id AND status IN ('running', 'paused', 'cancelling')) \
       AND coalesce((SELECT MAX(finished_at_ms) FROM run WHERE campaign_id = c.id), c.created_at_ms) < $1 \
     ORDER BY ended, c.id LIMIT $2";

/// Deletes the data of a run, before the run.
const OF_A_RUN: [&str; 15] = [
    "DELETE FROM model_request WHERE run_id = $1",
    "DELETE FROM step_input WHERE step_id IN (SELECT id FROM step WHERE run_id = $1)",
    "DELETE FROM event WHERE run_id = $1",
    "DELETE FROM step WHERE run_id = $1",
    "DELETE FROM model_call WHERE run_id = $1",
    "DELETE FROM retrieval WHERE run_id = $1",
    "DELETE FROM attempt_score WHERE run_id = $1",
    "DELETE FROM artifact_use WHERE run_id = $1",
    "DELETE FROM run_part WHERE run_id = $1",
    "DELETE FROM run_state WHERE run_id = $1",
    "DELETE FROM remark WHERE run_id = $1",
    "DELETE FROM tag WHERE run_id = $1",
    "DELETE FROM pin WHERE run_id = $1",
    "DELETE FROM share WHERE run_id = $1",
    "DELETE FROM run WHERE id = $1",
];

/// Deletes the data of a campaign without runs, before the campaign.
const OF_A_CAMPAIGN: [&str; 8] = [
    "DELETE FROM handover WHERE campaign_id = $1",
    "DELETE FROM budget WHERE campaign_id = $1",
    "DELETE FROM campaign_clock WHERE campaign_id = $1",
    "DELETE FROM remark WHERE campaign_id = $1",
    "DELETE FROM tag WHERE campaign_id = $1",
    "DELETE FROM pin WHERE campaign_id = $1",
    "DELETE FROM share WHERE campaign_id = $1",
    "DELETE FROM campaign WHERE id = $1",
];

/// Old artifacts without references. They include uploads that began long ago and whose run does not reference them
/// yet; renewal protects these.
macro_rules! unused_artifacts {
    ($end:literal) => {
        concat!(
            "SELECT a.id, a.stored_bytes FROM artifact a WHERE a.created_at_ms < $1 \
             AND NOT EXISTS (SELECT 1 FROM artifact_use WHERE hash = a.hash) ORDER BY a.created_at_ms LIMIT $2",
            $end
        )
    };
}

/// On Postgres, artifacts that are being uploaded again are skipped.
pub(crate) const UNUSED_ARTIFACTS: Sql =
    Sql { sqlite: unused_artifacts!(""), postgres: unused_artifacts!(" FOR UPDATE OF a SKIP LOCKED") };

/// Maximum size of artifacts deleted per transaction, in bytes, unless one is larger. Long transactions let leases
/// expire.
const MAX_PRUNED_BYTES: i64 = 64 * 1024 * 1024;
/// Pages returned to the file system per transaction on SQLite: 16 MiB.
const GIVE_BACK: &str = "PRAGMA incremental_vacuum(4096)";

pub(crate) async fn finished(
    connection: &mut Connection,
    before: TimestampMs,
    limit: u32,
) -> Result<Vec<CampaignId>, Failure> {
    let rows = connection.fetch_all(FINISHED, values![before.0, limit.min(MAX_PAGE)]).await?;
    rows.iter().map(|row| public_id(row.str(0)?, "a campaign's id")).collect()
}

pub(crate) async fn campaign(
    transaction: &mut Transaction<'_>,
    id: &CampaignId,
    limit: u32,
) -> Result<Pruned, Failure> {
    let connection = &mut *transaction.connection;
    let campaign_id = campaign::key_of(connection, id.as_str()).await?;
    // A concurrent retry holds the row of its run, so the row is locked before its deletion.
    let unfinished = "SELECT public_id FROM run WHERE campaign_id = $1 \
                      AND status IN ('running', 'paused', 'cancelling') LIMIT 1";
    if let Some(run) = connection.fetch_optional(unfinished, values![campaign_id]).await? {
        let message = format!("{id} is not finished: {} goes on. Cancel it, or wait for its end", run.str(0)?);
        return Err(Failure::refused("campaign.not_finished", message));
    }
    let mut pruned = Pruned::default();
    let next = Sql {
        sqlite: "SELECT id, status FROM run WHERE campaign_id = $1 ORDER BY id LIMIT 1",
        postgres: "SELECT id, status FROM run WHERE campaign_id = $1 ORDER BY id LIMIT 1 FOR UPDATE",
    };
    while pruned.rows < u64::from(limit.max(1)) {
        let Some(run) = connection.fetch_optional(next, values![campaign_id]).await? else {
            // Postgres returns no row when a concurrent deletion held the first one, although others may follow.
            let any = "SELECT 1 AS one FROM run WHERE campaign_id = $1 LIMIT 1";
            if connection.fetch_optional(any, values![campaign_id]).await?.is_some() {
                continue;
            }
            for sql in OF_A_CAMPAIGN {
                // The last one deletes the campaign, unless a concurrent deletion did.
                pruned.campaigns = connection.execute(sql, values![campaign_id]).await?;
                pruned.rows += pruned.campaigns;
            }
            return Ok(pruned);
        };
        if !super::run::status_of(run.str(1)?)?.is_final() {
            return Err(Failure::refused("campaign.not_finished", format!("a run of {id} was retried")));
        }
        let run_id = run.i64(0)?;
        for sql in write::FORGET_RUN {
            pruned.rows += connection.execute(sql, values![run_id]).await?;
        }
        for sql in OF_A_RUN {
            pruned.rows += connection.execute(sql, values![run_id]).await?;
        }
    }
    pruned.more = true;
    Ok(pruned)
}

/// Deletes old artifacts and old idempotency keys.
pub(crate) async fn artifacts(
    transaction: &mut Transaction<'_>,
    before: TimestampMs,
    limit: u32,
) -> Result<Pruned, Failure> {
    let connection = &mut *transaction.connection;
    let limit = limit.clamp(1, MAX_PAGE);
    let rows = connection.fetch_all(UNUSED_ARTIFACTS, values![before.0, limit]).await?;
    let (mut ids, mut bytes) = (Vec::with_capacity(rows.len()), 0);
    for row in &rows {
        bytes += row.i64(1)?;
        if bytes > MAX_PRUNED_BYTES && !ids.is_empty() {
            break;
        }
        ids.push(row.i64(0)?);
    }
    let mut pruned = Pruned { artifacts: u64::try_from(ids.len()).unwrap_or(u64::MAX), ..Pruned::default() };
    pruned.more = ids.len() < rows.len() || rows.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
    if !ids.is_empty() {
        pruned.rows += piece::take_away(connection, ids.clone()).await?;
        pruned.rows += connection.execute(any_of!("DELETE FROM artifact WHERE id", "$1", ""), values![ids]).await?;
    }
    write::forget_gone(connection).await?;
    let keys = "DELETE FROM idempotency WHERE key IN (SELECT key FROM idempotency WHERE at_ms < $1 LIMIT $2)";
    pruned.rows += connection.execute(keys, values![before.0, limit]).await?;
    pruned.more |= give_back(connection).await?;
    Ok(pruned)
}

/// Returns free pages to the file system on SQLite. Returns whether there are more.
pub(crate) async fn give_back(connection: &mut Connection) -> Result<bool, Failure> {
    if connection.backend() != Backend::Sqlite {
        return Ok(false);
    }
    // Each row stands for a page. The next page is freed only after the row is read.
    let given = connection.fetch_all(GIVE_BACK, values![]).await?.len();
    Ok(given > 0 && connection.fetch_one("PRAGMA freelist_count", values![]).await?.i64(0)? > 0)
}
