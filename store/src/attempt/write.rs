//! Writes runs into the index: all runs of a call under one change number.

use nightshift_protocol::attempt::Bound;
use nightshift_protocol::id::RunId;
use serde_json::{Value as Json, json};

use super::wanted::in_ppm;
use super::{IndexedAttempt, IndexedRun, document};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::to_stored;
use crate::page::MAX_PAGE;
use crate::public_id::public_id;
use crate::sql::from_rows;
use crate::transaction::Transaction;
use crate::value::values;

/// Rows per statement.
const ROWS_PER_STATEMENT: usize = 500;
/// Begins a change.
///
/// The row stays locked until the end, so changes become visible in the order of their numbers. A deletion comes before
/// or after a change, never in between.
const BEGIN: &str = "UPDATE attempt_clock SET changed = changed + 1 WHERE id = 1 RETURNING changed";

/// Selects a column of a row as a number.
macro_rules! number {
    ($column:literal) => {
        concat!("CAST(d.value ->> ", $column, " AS BIGINT)")
    };
}

/// Inserts runs, unless a later version is stored.
const PUT_RUNS: Sql = from_rows!(
    concat!(
        "INSERT INTO attempt_run (run_id, run, campaign, task, target, strategy, form, indexed_seq, changed, is_gone) \
         SELECT r.id, r.public_id, c.public_id, d.value ->> 1, d.value ->> 2, d.value ->> 3, ",
        number!(4),
        ", ",
        number!(5),
        ", $2, 0 FROM "
    ),
    " JOIN run r ON r.public_id = d.value ->> 0 JOIN campaign c ON c.id = r.campaign_id WHERE true \
      ON CONFLICT (run_id) DO UPDATE SET run = excluded.run, campaign = excluded.campaign, task = excluded.task, \
         target = excluded.target, strategy = excluded.strategy, form = excluded.form, \
         indexed_seq = excluded.indexed_seq, changed = excluded.changed, is_gone = 0 \
      WHERE attempt_run.is_gone = 1 OR attempt_run.form < excluded.form \
         OR (attempt_run.form = excluded.form AND attempt_run.indexed_seq <= excluded.indexed_seq)"
);

/// Inserts attempts of runs that this change wrote.
const PUT_ATTEMPTS: Sql = from_rows!(
    concat!(
        "INSERT INTO attempt (run_id, number, stage, parent, outcome, is_best, is_confirmed, speedup_ppm, speedup_low_ppm, \
            speedup_high_ppm, candidate_ps, reward_ppm, rubric_total, bound, issue, tokens, cost_microusd, model, device, \
            source, created_at_ms, finished_at_ms, device_ms, over_fastest_ppm, over_fastest_low_ppm, \
            over_fastest_high_ppm) SELECT x.run_id, ",
        number!(1),
        ", d.value ->> 2, ",
        number!(3),
        ", d.value ->> 4, ",
        number!(5),
        ", ",
        number!(6),
        ", ",
        number!(7),
        ", ",
        number!(8),
        ", ",
        number!(9),
        ", ",
        number!(10),
        ", ",
        number!(11),
        ", ",
        number!(12),
        ", d.value ->> 13, d.value ->> 14, ",
        number!(15),
        ", ",
        number!(16),
        ", d.value ->> 17, d.value ->> 18, d.value ->> 19, ",
        number!(20),
        ", ",
        number!(21),
        ", ",
        number!(22),
        ", ",
        number!(23),
        ", ",
        number!(24),
        ", ",
        number!(25),
        " FROM "
    ),
    " JOIN run r ON r.public_id = d.value ->> 0 JOIN attempt_run x ON x.run_id = r.id AND x.changed = $2 WHERE true \
      ON CONFLICT (run_id, number) DO UPDATE SET stage = excluded.stage, parent = excluded.parent, \
         outcome = excluded.outcome, is_best = excluded.is_best, is_confirmed = excluded.is_confirmed, \
         speedup_ppm = excluded.speedup_ppm, speedup_low_ppm = excluded.speedup_low_ppm, \
         speedup_high_ppm = excluded.speedup_high_ppm, candidate_ps = excluded.candidate_ps, \
         reward_ppm = excluded.reward_ppm, rubric_total = excluded.rubric_total, bound = excluded.bound, \
         issue = excluded.issue, tokens = excluded.tokens, cost_microusd = excluded.cost_microusd, \
         model = excluded.model, device = excluded.device, source = excluded.source, \
         created_at_ms = excluded.created_at_ms, finished_at_ms = excluded.finished_at_ms, \
         device_ms = excluded.device_ms, over_fastest_ppm = excluded.over_fastest_ppm, \
         over_fastest_low_ppm = excluded.over_fastest_low_ppm, over_fastest_high_ppm = excluded.over_fastest_high_ppm"
);

/// Selects runs whose decisions are not in the index, or only in an earlier format. Entries of a later release are left
/// unchanged.
pub(crate) const BEHIND: &str = "SELECT r.public_id FROM run r \
     LEFT JOIN attempt_run x ON x.run_id = r.id AND x.run_id >= $2 \
     WHERE r.id >= $2 AND r.folded_seq > 0 AND (x.run_id IS NULL OR x.is_gone = 1 OR x.form < $1 \
           OR (x.form = $1 AND x.indexed_seq < r.folded_seq)) \
     ORDER BY r.id LIMIT $3";

/// Selects the position of the oldest unfinished run. `id + 0` makes Postgres use the index on the status instead of walking the primary
/// key through finished runs.
pub(crate) const OLDEST_UNFINISHED: &str = "SELECT coalesce( \
     (SELECT MIN(id + 0) FROM run WHERE status IN ('running', 'paused', 'cancelling')), \
     (SELECT MAX(id) + 1 FROM run), 0)";

/// Updates the index before a run is deleted; `$1` is the run's key.
pub(crate) const FORGET_RUN: [&str; 4] = [
    "UPDATE attempt_clock SET changed = changed + 1 WHERE id = 1 AND $1 <> 0",
    "DELETE FROM search_document WHERE run_id = $1",
    "DELETE FROM attempt WHERE run_id = $1",
    "UPDATE attempt_run SET is_gone = 1, changed = (SELECT changed FROM attempt_clock WHERE id = 1) WHERE run_id = $1",
];

/// Keeps deleted runs for a hundred thousand changes. A process that has not refreshed for longer reads everything
/// again.
const FORGET_GONE: [&str; 2] = [
    "UPDATE attempt_clock SET forgotten = changed - 100000 WHERE id = 1 AND changed - forgotten > 200000",
    "DELETE FROM attempt_run WHERE is_gone = 1 AND changed <= (SELECT forgotten FROM attempt_clock WHERE id = 1)",
];

pub(crate) async fn behind(
    connection: &mut Connection,
    form: u32,
    from: i64,
    limit: u32,
) -> Result<Vec<RunId>, Failure> {
    let rows = connection.fetch_all(BEHIND, values![form, from, limit.min(MAX_PAGE)]).await?;
    rows.iter().map(|row| public_id(row.str(0)?, "a run's id")).collect()
}

pub(crate) async fn oldest_unfinished(connection: &mut Connection) -> Result<i64, Failure> {
    connection.fetch_one(OLDEST_UNFINISHED, values![]).await?.i64(0)
}

pub(crate) async fn put(transaction: &mut Transaction<'_>, runs: &[IndexedRun]) -> Result<(), Failure> {
    if runs.is_empty() {
        return Ok(());
    }
    let connection = &mut *transaction.connection;
    // Fetch all rows: a statement that returns rows is only complete then.
    let began = connection.fetch_all(BEGIN, values![]).await?;
    let change =
        began.first().ok_or_else(|| Failure::unreadable("the index of attempts", &"it has no clock"))?.i64(0)?;
    let heads: Vec<Json> = runs.iter().map(head).collect();
    for chunk in heads.chunks(ROWS_PER_STATEMENT) {
        connection.execute(PUT_RUNS, values![json::write(chunk)?, change]).await?;
    }
    let rows: Vec<Json> =
        runs.iter().flat_map(|run| run.attempts.iter().map(|attempt| row(&run.run, attempt))).collect();
    for chunk in rows.chunks(ROWS_PER_STATEMENT) {
        connection.execute(PUT_ATTEMPTS, values![json::write(chunk)?, change]).await?;
    }
    document::put(connection, runs, change).await
}

/// Removes deleted runs that every process has seen.
pub(crate) async fn forget_gone(connection: &mut Connection) -> Result<(), Failure> {
    for sql in FORGET_GONE {
        connection.execute(sql, values![]).await?;
    }
    Ok(())
}

fn head(run: &IndexedRun) -> Json {
    json!([run.run, run.task, run.target.as_str(), run.strategy, run.form, to_stored(run.seq)])
}

fn row(run: &RunId, attempt: &IndexedAttempt) -> Json {
    let (speedup, over_fastest) = (attempt.speedup, attempt.speedup_over_fastest);
    json!([
        run,
        attempt.number,
        attempt.stage.as_str(),
        attempt.parent,
        attempt.outcome.as_str(),
        i64::from(attempt.is_best),
        i64::from(attempt.is_confirmed),
        speedup.map(|speedup| in_ppm(speedup.estimate)),
        speedup.map(|speedup| in_ppm(speedup.low)),
        speedup.map(|speedup| in_ppm(speedup.high)),
        attempt.candidate_median_ns.map(|ns| in_ppm(ns / 1e3)),
        attempt.reward.map(in_ppm),
        attempt.rubric_total,
        attempt.bound.map(Bound::as_str),
        attempt.issue,
        to_stored(attempt.tokens),
        attempt.cost_microusd.map(to_stored),
        attempt.model,
        attempt.device,
        attempt.source,
        attempt.created_at.0,
        attempt.finished_at.map(|at| at.0),
        to_stored(attempt.device_ms),
        over_fastest.map(|speedup| in_ppm(speedup.estimate)),
        over_fastest.map(|speedup| in_ppm(speedup.low)),
        over_fastest.map(|speedup| in_ppm(speedup.high)),
    ])
}
