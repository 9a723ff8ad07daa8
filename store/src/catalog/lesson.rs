//! Lessons: the effects of changes to programs, over all runs.

use nightshift_engine::store::{BoundFrom, LessonQuery, LessonRecord};
use nightshift_protocol::time::TimestampMs;

use super::{MAX_PAGE, public_id};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::{count_from_stored, from_stored, to_stored};
use crate::row::Row;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

/// Stores one lesson per attempt. A lesson that was shown to other runs stays unchanged.
const PUT: &str = "INSERT INTO lesson (run, attempt, task, operator_class, bound, bound_from, device, change, gain_ppm, certain, at_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (run, attempt) DO NOTHING";

/// Lessons about operators of some classes.
pub(crate) const FIND: crate::connection::Sql = any_of!(
    "SELECT run, attempt, task, operator_class, bound, bound_from, device, change, gain_ppm, certain, at_ms FROM lesson \
     WHERE operator_class",
    "$1",
    " AND run <> $2 ORDER BY CASE WHEN bound = $3 THEN 0 ELSE 1 END, CASE WHEN device = $4 THEN 0 ELSE 1 END, \
       certain DESC, at_ms DESC, run, attempt LIMIT $5"
);

pub(crate) async fn record(transaction: &mut Transaction<'_>, lesson: &LessonRecord) -> Result<(), Failure> {
    let values = values![
        lesson.run.as_str(),
        lesson.attempt,
        json::clean(&lesson.task),
        json::clean(&lesson.operator_class),
        json::clean(&lesson.bound),
        lesson.bound_from.as_str(),
        json::clean(&lesson.device),
        json::clean(&lesson.change),
        to_stored(lesson.gain_ppm),
        lesson.certain,
        lesson.at.0
    ];
    transaction.connection.execute(PUT, values).await?;
    Ok(())
}

pub(crate) async fn find(connection: &mut Connection, query: &LessonQuery) -> Result<Vec<LessonRecord>, Failure> {
    let classes: Vec<String> = query.operator_classes.iter().map(|class| json::clean(class).into_owned()).collect();
    let values = values![
        classes,
        query.except_run.as_ref().map_or("", |run| run.as_str()),
        json::clean(query.bound.as_deref().unwrap_or_default()),
        json::clean(query.device.as_deref().unwrap_or_default()),
        query.limit.min(MAX_PAGE)
    ];
    connection.fetch_all(FIND, values).await?.iter().map(of_row).collect()
}

fn of_row(row: &Row) -> Result<LessonRecord, Failure> {
    Ok(LessonRecord {
        run: public_id(row.str("run")?, "a run's id")?,
        attempt: count_from_stored(row.i64("attempt")?),
        task: row.text("task")?,
        operator_class: row.text("operator_class")?,
        bound: row.text("bound")?,
        bound_from: bound_from(row.str("bound_from")?)?,
        device: row.text("device")?,
        change: row.text("change")?,
        gain_ppm: from_stored(row.i64("gain_ppm")?),
        certain: row.flag("certain")?,
        at: TimestampMs(row.i64("at_ms")?),
    })
}

fn bound_from(name: &str) -> Result<BoundFrom, Failure> {
    BoundFrom::parse(name).ok_or_else(|| Failure::unreadable("who said what limited a program", &name))
}
