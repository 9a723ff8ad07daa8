//! Reads rows of attempts for lists by their keys.

use nightshift_protocol::api::AttemptRow;
use nightshift_protocol::attempt::{AttemptOutcome, Bound, Stage};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::task::Target;
use nightshift_protocol::time::TimestampMs;

use super::columns::Key;
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::{count_from_stored, from_stored};
use crate::public_id::public_id;
use crate::row::Row;
use crate::sql::from_rows;
use crate::value::values;

/// Selects the attempts of these keys, in the order of the keys.
pub(crate) const BY_KEY: Sql = from_rows!(
    "SELECT a.number, a.stage, a.parent, a.outcome, a.is_best, a.is_confirmed, a.speedup_ppm, a.speedup_low_ppm, \
            a.speedup_high_ppm, a.candidate_ps, a.reward_ppm, a.rubric_total, a.bound, a.issue, a.tokens, a.cost_microusd, \
            a.model, a.device, a.source, a.created_at_ms, a.finished_at_ms, a.over_fastest_ppm, a.over_fastest_low_ppm, \
            a.over_fastest_high_ppm, x.run, x.campaign, x.task, x.target, x.strategy \
     FROM ",
    " JOIN attempt a ON a.run_id = CAST(d.value ->> 0 AS BIGINT) AND a.number = CAST(d.value ->> 1 AS BIGINT) \
      JOIN attempt_run x ON x.run_id = a.run_id ORDER BY d.key"
);

/// Returns the rows of these keys. Deleted attempts are skipped.
pub(crate) async fn by_keys(connection: &mut Connection, keys: &[Key]) -> Result<Vec<AttemptRow>, Failure> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let rows = connection.fetch_all(BY_KEY, values![json::write(keys)?]).await?;
    rows.iter().map(record).collect()
}

pub(crate) async fn at(connection: &mut Connection, run_key: u32, number: u32) -> Result<AttemptRow, Failure> {
    let found = by_keys(connection, &[(i64::from(run_key), number)]).await?.pop();
    found.ok_or_else(|| Failure::not_found("attempt", format!("{run_key}/{number}")))
}

fn record(row: &Row) -> Result<AttemptRow, Failure> {
    let run = row.str("run")?;
    let unknown = |what: &str, text: &str| {
        Failure::unreadable(format!("the {what} of an attempt of {run}"), &format!("`{text}` is none"))
    };
    let (stage, outcome, target) = (row.str("stage")?, row.str("outcome")?, row.str("target")?);
    let ppm = |column: &'static str| -> Result<Option<f64>, Failure> { Ok(row.opt_i64(column)?.map(from_ppm)) };
    let interval = |[estimate, low, high]: [&'static str; 3]| -> Result<Option<Interval>, Failure> {
        Ok(match (ppm(estimate)?, ppm(low)?, ppm(high)?) {
            (Some(estimate), Some(low), Some(high)) => Some(Interval { estimate, low, high }),
            _ => None,
        })
    };
    let bound = row.opt_str("bound")?;
    Ok(AttemptRow {
        run: public_id(run, "a run's id")?,
        campaign: public_id(row.str("campaign")?, "a campaign's id")?,
        number: count_from_stored(row.i64("number")?),
        task: row.text("task")?,
        target: target_of(target).ok_or_else(|| unknown("target", target))?,
        strategy: row.text("strategy")?,
        model: row.text("model")?,
        stage: Stage::parse(stage).ok_or_else(|| unknown("stage", stage))?,
        parent: row.opt_i64("parent")?.map(count_from_stored),
        outcome: AttemptOutcome::parse(outcome).ok_or_else(|| unknown("outcome", outcome))?,
        best: row.flag("is_best")?,
        confirmed: row.flag("is_confirmed")?,
        speedup: interval(["speedup_ppm", "speedup_low_ppm", "speedup_high_ppm"])?,
        speedup_over_fastest: interval(["over_fastest_ppm", "over_fastest_low_ppm", "over_fastest_high_ppm"])?,
        candidate_median_ns: row.opt_i64("candidate_ps")?.map(from_thousandths),
        reward: ppm("reward_ppm")?,
        rubric_total: row.opt_i64("rubric_total")?.map(count_from_stored),
        bound: bound.map(|bound| Bound::parse(bound).ok_or_else(|| unknown("bound", bound))).transpose()?,
        issue: row.opt_text("issue")?,
        tokens: from_stored(row.i64("tokens")?),
        cost_usd: ppm("cost_microusd")?,
        device: row.opt_text("device")?,
        source: row.opt_str("source")?.map(|source| public_id(source, "an artifact's hash")).transpose()?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        finished_at: row.opt_i64("finished_at_ms")?.map(TimestampMs),
    })
}

/// Parses a stored target.
pub(crate) fn target_of(text: &str) -> Option<Target> {
    Target::ALL.into_iter().find(|target| target.as_str() == text)
}

/// Converts from millionths.
#[expect(clippy::cast_precision_loss, reason = "exact up to nine thousand millions")]
pub(crate) fn from_ppm(ppm: i64) -> f64 {
    ppm as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "exact for calls of up to two and a half hours")]
fn from_thousandths(number: i64) -> f64 {
    number as f64 / 1e3
}
