//! Loads the candidates of claims: workers, ready steps by route in the order of their rank, devices in use, and
//! inputs.
//!
//! On Postgres, `hot_load.rs` loads workers and ready steps with their inputs.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use nightshift_engine::retry::RetryPolicy;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;

use super::claim::{Claimer, DeviceUses};
use super::load::{public_id, step};
use super::rows::{Details, Input, Place};
use super::working_set::WorkingSet;
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::number::{count_from_stored, from_stored};
use crate::row::Row;
use crate::value::{Value, values};

/// Selects the claiming workers; on SQLite.
const WORKERS: &str =
    "SELECT w.public_id, w.id, w.draining FROM json_each($1) d CROSS JOIN worker w ON w.public_id = d.value";

const DEVICES: Sql = Sql {
    sqlite: "SELECT l.step_id, l.worker_id, l.device, l.exclusive FROM json_each($1) d \
             CROSS JOIN lease l ON l.worker_id = d.value WHERE l.device IS NOT NULL",
    postgres: "SELECT step_id, worker_id, device, exclusive FROM lease \
               WHERE worker_id = ANY ($1::bigint[]) AND device IS NOT NULL",
};

const INPUTS: Sql = Sql {
    sqlite: "SELECT i.step_id, i.input FROM json_each($1) d CROSS JOIN step_input i ON i.step_id = d.value",
    postgres: "SELECT step_id, input FROM step_input WHERE step_id = ANY ($1::bigint[])",
};

const DETAILS: Sql = Sql {
    sqlite: concat!(
        "SELECT s.id, r.public_id, s.kind, s.max_tries, s.first_delay_ms, s.max_delay_ms, s.scheduled_at_ms ",
        "FROM json_each($1) d CROSS JOIN step s ON s.id = d.value JOIN run r ON r.id = s.run_id"
    ),
    postgres: "SELECT s.id, r.public_id, s.kind, s.max_tries, s.first_delay_ms, s.max_delay_ms, s.scheduled_at_ms \
               FROM step s JOIN run r ON r.id = s.run_id WHERE s.id = ANY ($1::bigint[])",
};

macro_rules! candidate_columns {
    () => {
        "SELECT s.id, s.public_id, s.run_id, s.key, s.route_id, s.status, s.epoch, s.tries, s.timeout_ms, s.cost_ms, \
         s.reserve, s.worker, s.failure, s.started_at_ms, s.reported_epoch, s.reported_digest, \
         (SELECT string_agg(v.resource || '=' || v.amount, ',') FROM reservation v WHERE v.step_id = s.id), \
         q.rank, q.latest_start_ms, q.campaign_id, r.public_id, s.kind, s.max_tries, s.first_delay_ms, \
         s.max_delay_ms, s.scheduled_at_ms FROM "
    };
}

/// Routes per statement on SQLite, which compounds at most 500 selects.
const MAX_PLACES: usize = 256;

/// Stored inputs of steps, by step id.
pub(crate) type Given = HashMap<i64, String>;

/// Loads the claiming workers.
pub(crate) async fn workers(
    connection: &mut Connection,
    workers: Vec<String>,
) -> Result<HashMap<String, Claimer>, Failure> {
    connection.fetch_all(WORKERS, values![workers]).await?.iter().map(claimer).collect()
}

pub(super) fn claimer(row: &Row) -> Result<(String, Claimer), Failure> {
    Ok((row.text(0)?, Claimer { id: row.i64(1)?, draining: row.flag(2)? }))
}

/// Loads the wanted number of first ready steps of each route; on SQLite.
pub(crate) async fn ready(
    connection: &mut Connection,
    set: &mut WorkingSet,
    wanted: &BTreeMap<i64, u32>,
    at: TimestampMs,
) -> Result<(), Failure> {
    let wanted: Vec<_> = wanted.iter().collect();
    for part in wanted.chunks(MAX_PLACES) {
        let places = part.len().next_power_of_two();
        let mut parameters: Vec<Value> = Vec::with_capacity(places * 2 + 1);
        parameters.push(at.0.into());
        for (route, count) in part {
            parameters.extend([Value::from(**route), Value::from(**count)]);
        }
        parameters.resize_with(places * 2 + 1, || Value::OptI64(Some(0)));
        for row in connection.fetch_built(&ready_on_sqlite(places), parameters).await? {
            candidate(set, &row)?;
        }
    }
    Ok(())
}

/// Adds a ready step to the working set, unless it is loaded already. Returns its id.
pub(super) fn candidate(set: &mut WorkingSet, row: &Row) -> Result<i64, Failure> {
    let id = row.i64(0)?;
    if set.steps.contains_key(&id) {
        return Ok(id);
    }
    let mut step = step(row, row.i64(19)?)?;
    step.place = Place::Ready { rank: row.i64(17)?, latest_start: row.opt_i64(18)? };
    step.place_before = step.place.clone();
    step.details = Some(Details {
        run: public_id::<RunId>(row.str(20)?, "a run's id")?,
        kind: row.text(21)?,
        retry: RetryPolicy {
            max_tries: count_from_stored(row.i64(22)?),
            first_delay_ms: from_stored(row.i64(23)?),
            max_delay_ms: from_stored(row.i64(24)?),
        },
        scheduled_at: TimestampMs(row.i64(25)?),
        input: Input::Stored,
    });
    set.add_step(step);
    Ok(id)
}

/// Returns the statement for this many routes. Unused places get route 0, which does not exist.
///
/// The limit is a sum because SQLite replans a statement whenever a bare limit parameter changes.
fn ready_on_sqlite(places: usize) -> Arc<str> {
    static TEXTS: LazyLock<Mutex<HashMap<usize, Arc<str>>>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let text = texts.entry(places).or_insert_with(|| {
        let mut text = String::from(concat!(candidate_columns!(), "("));
        for place in 0..places {
            let (route, count) = (place * 2 + 2, place * 2 + 3);
            let union = if place == 0 { "" } else { " UNION ALL " };
            // Writing to a string cannot fail.
            let _written = write!(
                text,
                "{union}SELECT * FROM (SELECT step_id, rank, latest_start_ms, campaign_id FROM ready \
                 WHERE route_id = ${route} AND (latest_start_ms IS NULL OR latest_start_ms >= $1) \
                 ORDER BY rank, step_id LIMIT 0 + ${count})"
            );
        }
        text.push_str(") q CROSS JOIN step s ON s.id = q.step_id JOIN run r ON r.id = s.run_id");
        text.into()
    });
    Arc::clone(text)
}

/// Loads the details for a claim's answer of steps that were loaded before they became ready.
pub(crate) async fn details(connection: &mut Connection, set: &mut WorkingSet, steps: Vec<i64>) -> Result<(), Failure> {
    for row in connection.fetch_all(DETAILS, values![steps]).await? {
        let details = Details {
            run: public_id::<RunId>(row.str(1)?, "a run's id")?,
            kind: row.text(2)?,
            retry: RetryPolicy {
                max_tries: count_from_stored(row.i64(3)?),
                first_delay_ms: from_stored(row.i64(4)?),
                max_delay_ms: from_stored(row.i64(5)?),
            },
            scheduled_at: TimestampMs(row.i64(6)?),
            input: Input::Stored,
        };
        set.step_mut(row.i64(0)?)?.details = Some(details);
    }
    Ok(())
}

/// Loads the device usage of workers. For loaded steps, the working set overrides the stored rows.
pub(crate) async fn devices(
    connection: &mut Connection,
    set: &WorkingSet,
    workers: Vec<i64>,
) -> Result<DeviceUses, Failure> {
    let mut uses = DeviceUses::default();
    for row in connection.fetch_all(DEVICES, values![workers]).await? {
        if !set.steps.contains_key(&row.i64(0)?) {
            uses.note(row.i64(1)?, row.i64(2)?, row.flag(3)?);
        }
    }
    for step in set.steps.values() {
        if let Place::Leased { worker_id, device: Some(device), exclusive, .. } = step.place {
            uses.note(worker_id, device, exclusive);
        }
    }
    Ok(uses)
}

/// Loads the inputs of steps.
pub(crate) async fn inputs(connection: &mut Connection, steps: Vec<i64>) -> Result<Given, Failure> {
    let rows = connection.fetch_all(INPUTS, values![steps]).await?;
    rows.iter().map(|row| Ok((row.i64(0)?, row.text(1)?))).collect()
}
