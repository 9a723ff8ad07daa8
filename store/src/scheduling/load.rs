//! Loads the rows of a transaction with one statement per kind of row: on SQLite, and for rare operations on both
//! databases. On Postgres, `hot_load.rs` loads the rows of the hot path.
//!
//! On Postgres, locks are taken in this order: runs by id, then budgets by campaign and resource, then ready rows, then
//! workers and the clocks of campaigns. A row that depends on a lock is read by a later statement. A leased step changes
//! only under the lock of its run. A ready step changes under the locks of its run and its ready row. The window and the
//! wall time of a campaign change only under the locks of all its runs.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use nightshift_protocol::budget::{BudgetLine, Resource};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, StepStatus};

use super::admit::{read_amounts, read_reserved};
use super::rows::{Campaign, Place, Run, Step};
use super::working_set::WorkingSet;
use crate::connection::{Backend, Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::{count_from_stored, from_stored};
use crate::row::Row;
use crate::value::values;

/// Maximum number of blocked steps that are reconsidered after a release. The following steps are next.
pub(crate) const MAX_UNBLOCKED: i64 = 256;

macro_rules! run_columns {
    () => {
        "SELECT r.id, r.public_id, r.campaign_id, r.status, r.priority, o.public_id, r.owner_epoch, r.revision, \
         r.last_seq, r.wake_seq, r.folded_seq, r.failure, r.finished_at_ms "
    };
}

/// Runs by public id, by public ids of their steps, and by id.
const RUNS: Sql = Sql {
    sqlite: concat!(
        run_columns!(),
        "FROM (SELECT id FROM run WHERE public_id IN (SELECT value FROM json_each($1)) \
         UNION SELECT run_id FROM step WHERE public_id IN (SELECT value FROM json_each($2)) \
         UNION SELECT value FROM json_each($3)) AS d \
         CROSS JOIN run r ON r.id = d.id LEFT JOIN server o ON o.id = r.owner_id"
    ),
    postgres: concat!(
        run_columns!(),
        "FROM run r LEFT JOIN server o ON o.id = r.owner_id \
         WHERE r.id = ANY (ARRAY(SELECT id FROM run WHERE public_id = ANY ($1::text[]) \
         UNION SELECT run_id FROM step WHERE public_id = ANY ($2::text[]) UNION SELECT unnest($3::bigint[]))) \
         ORDER BY r.id FOR NO KEY UPDATE OF r"
    ),
};

/// Running runs of steps that are blocked on the budgets of campaigns.
///
/// A run that another transaction has locked is skipped, because waiting here could deadlock. The sweeper reconsiders its
/// steps.
const RUNS_OF_BLOCKED: Sql = Sql {
    sqlite: concat!(
        run_columns!(),
        "FROM (SELECT DISTINCT o.run_id AS id FROM (SELECT s.run_id FROM blocked b \
         CROSS JOIN step s ON s.id = b.step_id CROSS JOIN run q ON q.id = s.run_id AND q.status = 'running' \
         WHERE b.campaign_id IN (SELECT value FROM json_each($1)) ORDER BY b.campaign_id, b.step_id LIMIT $2) o) AS d \
         CROSS JOIN run r ON r.id = d.id LEFT JOIN server o ON o.id = r.owner_id"
    ),
    postgres: concat!(
        run_columns!(),
        "FROM run r LEFT JOIN server o ON o.id = r.owner_id \
         WHERE r.id = ANY (ARRAY(SELECT s.run_id FROM blocked b \
         JOIN step s ON s.id = b.step_id JOIN run q ON q.id = s.run_id AND q.status = 'running' \
         WHERE b.campaign_id = ANY ($1::bigint[]) ORDER BY b.campaign_id, b.step_id LIMIT $2)) \
         ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED"
    ),
};

macro_rules! step_columns {
    () => {
        "SELECT s.id, s.public_id, s.run_id, s.key, s.route_id, s.status, s.epoch, s.tries, s.timeout_ms, s.cost_ms, \
         s.reserve, s.worker, s.failure, s.started_at_ms, s.reported_epoch, s.reported_digest, \
         (SELECT string_agg(v.resource || '=' || v.amount, ',') FROM reservation v WHERE v.step_id = s.id), "
    };
}

macro_rules! lease_columns {
    () => {
        "l.epoch, l.worker_id, l.expires_at_ms, l.device, l.exclusive "
    };
}

/// Steps by public id, with their leases.
const REPORTED: Sql = Sql {
    sqlite: concat!(
        step_columns!(),
        lease_columns!(),
        "FROM json_each($1) d CROSS JOIN step s ON s.public_id = d.value LEFT JOIN lease l ON l.step_id = s.id"
    ),
    postgres: concat!(
        step_columns!(),
        lease_columns!(),
        "FROM step s LEFT JOIN lease l ON l.step_id = s.id WHERE s.public_id = ANY ($1::text[])"
    ),
};

macro_rules! place_columns {
    () => {
        ", y.rank, y.latest_start_ms, t.not_before_ms, b.resource, b.told, n.needs, t.for_window "
    };
}

macro_rules! place_joins {
    () => {
        "JOIN route n ON n.id = s.route_id LEFT JOIN lease l ON l.step_id = s.id LEFT JOIN ready y ON y.step_id = s.id \
         LEFT JOIN timer t ON t.step_id = s.id LEFT JOIN blocked b ON b.step_id = s.id "
    };
}

/// Open steps of runs, in any place.
const OPEN: Sql = Sql {
    sqlite: concat!(
        step_columns!(),
        lease_columns!(),
        place_columns!(),
        "FROM json_each($1) d CROSS JOIN step s ON s.run_id = d.value AND s.status IN ('scheduled', 'leased') ",
        place_joins!(),
        "ORDER BY s.id"
    ),
    postgres: concat!(
        step_columns!(),
        lease_columns!(),
        place_columns!(),
        "FROM step s ",
        place_joins!(),
        "WHERE s.run_id = ANY ($1::bigint[]) AND s.status IN ('scheduled', 'leased') ORDER BY s.id"
    ),
};

/// Steps by id, in any place.
const BY_ID: Sql = Sql {
    sqlite: concat!(
        step_columns!(),
        lease_columns!(),
        place_columns!(),
        "FROM json_each($1) d CROSS JOIN step s ON s.id = d.value ",
        place_joins!(),
        "ORDER BY s.id"
    ),
    postgres: concat!(
        step_columns!(),
        lease_columns!(),
        place_columns!(),
        "FROM step s ",
        place_joins!(),
        "WHERE s.id = ANY ($1::bigint[]) ORDER BY s.id"
    ),
};

/// Blocked steps of running runs of campaigns, oldest first. Steps of other runs cannot become ready.
const BLOCKED: Sql = Sql {
    sqlite: concat!(
        step_columns!(),
        lease_columns!(),
        place_columns!(),
        "FROM (SELECT o.step_id FROM blocked o \
         CROSS JOIN step p ON p.id = o.step_id CROSS JOIN run q ON q.id = p.run_id AND q.status = 'running' \
         WHERE o.campaign_id IN (SELECT value FROM json_each($1)) \
         ORDER BY o.campaign_id, o.step_id LIMIT $2) d CROSS JOIN step s ON s.id = d.step_id ",
        place_joins!(),
        "ORDER BY s.id"
    ),
    postgres: concat!(
        step_columns!(),
        lease_columns!(),
        place_columns!(),
        "FROM (SELECT o.step_id FROM blocked o \
         JOIN step p ON p.id = o.step_id JOIN run q ON q.id = p.run_id AND q.status = 'running' \
         WHERE o.campaign_id = ANY ($1::bigint[]) \
         ORDER BY o.campaign_id, o.step_id LIMIT $2) d JOIN step s ON s.id = d.step_id ",
        place_joins!(),
        "ORDER BY s.id"
    ),
};

/// Existing keys among pairs of run and key; on SQLite.
const KEYS: &str = "SELECT s.run_id, s.key FROM json_each($1) d \
     CROSS JOIN step s ON s.run_id = d.value ->> 0 AND s.key = d.value ->> 1";

/// The admission facts of campaigns, without a lock: window and wall time do not change while a run of the campaign is
/// locked, and the write adds to the clock instead of setting it.
const CAMPAIGNS: Sql = Sql {
    sqlite: "SELECT c.id, c.created_at_ms, c.schedule, c.weight, k.vtime, w.cap, w.used FROM json_each($1) d \
             CROSS JOIN campaign c ON c.id = d.value JOIN campaign_clock k ON k.campaign_id = c.id \
             LEFT JOIN budget w ON w.campaign_id = c.id AND w.resource = 'wall_ms'",
    postgres: "SELECT c.id, c.created_at_ms, c.schedule, c.weight, k.vtime, w.cap, w.used FROM campaign c \
               JOIN campaign_clock k ON k.campaign_id = c.id \
               LEFT JOIN budget w ON w.campaign_id = c.id AND w.resource = 'wall_ms' \
               WHERE c.id = ANY ($1::bigint[])",
};

/// Budgets of campaigns.
const BUDGETS: Sql = Sql {
    sqlite: "SELECT campaign_id, resource, cap, used, reserved FROM budget \
             WHERE campaign_id IN (SELECT value FROM json_each($1))",
    postgres: "SELECT campaign_id, resource, cap, used, reserved FROM budget \
               WHERE campaign_id = ANY ($1::bigint[]) ORDER BY campaign_id, resource FOR UPDATE",
};

/// Locks the ready steps of runs against claims.
const LOCK_READY: &str = "SELECT y.step_id FROM ready y JOIN step s ON s.id = y.step_id \
     WHERE s.run_id = ANY ($1::bigint[]) AND s.status = 'scheduled' ORDER BY y.route_id, y.rank, y.step_id \
     FOR UPDATE OF y";

/// Locks these steps against claims.
const LOCK_READY_STEPS: &str = "SELECT step_id FROM ready WHERE step_id = ANY ($1::bigint[]) \
     ORDER BY route_id, rank, step_id FOR UPDATE";

/// Loads and locks runs by public id, by public ids of their steps, and by id. Missing runs are skipped.
pub(crate) async fn runs(
    connection: &mut Connection,
    set: &mut WorkingSet,
    runs: Vec<String>,
    steps: Vec<String>,
    ids: Vec<i64>,
) -> Result<(), Failure> {
    for row in connection.fetch_all(RUNS, values![runs, steps, ids]).await? {
        set.add_run(run(&row)?);
    }
    Ok(())
}

/// Loads steps of loaded runs by public id, with their leases. Steps of other runs are skipped.
pub(crate) async fn reported(
    connection: &mut Connection,
    set: &mut WorkingSet,
    steps: Vec<String>,
) -> Result<(), Failure> {
    take_in_reported(set, &connection.fetch_all(REPORTED, values![steps]).await?)
}

pub(super) fn take_in_reported(set: &mut WorkingSet, rows: &[Row]) -> Result<(), Failure> {
    for row in rows {
        if let Some(step) = leased_step(set, row)? {
            set.add_step(step);
        }
    }
    Ok(())
}

/// Loads the open steps of loaded runs and locks them against claims.
pub(crate) async fn open_steps(
    connection: &mut Connection,
    set: &mut WorkingSet,
    runs: Vec<i64>,
) -> Result<(), Failure> {
    let mut rows = connection.fetch_all(OPEN, values![runs.clone()]).await?;
    if !rows.is_empty() && connection.backend() == Backend::Postgres {
        connection.fetch_all(LOCK_READY, values![runs.clone()]).await?;
        rows = connection.fetch_all(OPEN, values![runs]).await?;
    }
    take_in(set, &rows)
}

/// Loads steps of loaded runs by id, in any place, and locks them against claims. Steps of other runs are skipped.
pub(crate) async fn steps(connection: &mut Connection, set: &mut WorkingSet, ids: Vec<i64>) -> Result<(), Failure> {
    if ids.is_empty() {
        return Ok(());
    }
    if connection.backend() == Backend::Postgres {
        connection.fetch_all(LOCK_READY_STEPS, values![ids.clone()]).await?;
    }
    let rows = connection.fetch_all(BY_ID, values![ids]).await?;
    take_in(set, &rows)
}

/// Loads steps by public id. See [`steps`].
pub(crate) async fn steps_by_public_id(
    connection: &mut Connection,
    set: &mut WorkingSet,
    public_ids: Vec<String>,
) -> Result<(), Failure> {
    let rows = connection.fetch_all(REPORTED, values![public_ids]).await?;
    let ids = rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?;
    steps(connection, set, ids).await
}

/// Loads steps that are blocked on the budgets of campaigns, with their runs. Returns the ids of the steps, oldest
/// first.
pub(crate) async fn blocked(
    connection: &mut Connection,
    set: &mut WorkingSet,
    campaigns: Vec<i64>,
) -> Result<Vec<i64>, Failure> {
    let found = connection.fetch_all(RUNS_OF_BLOCKED, values![campaigns.clone(), MAX_UNBLOCKED]).await?;
    for row in &found {
        let run = run(row)?;
        if !set.runs.contains_key(&run.id) {
            set.add_run(run);
        }
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let rows = connection.fetch_all(BLOCKED, values![campaigns, MAX_UNBLOCKED]).await?;
    take_in(set, &rows)?;
    let ids = rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?;
    Ok(ids.into_iter().filter(|id| set.steps.contains_key(id)).collect())
}

/// Loads which of these keys exist.
pub(crate) async fn keys(
    connection: &mut Connection,
    set: &mut WorkingSet,
    pairs: Vec<(i64, String)>,
) -> Result<(), Failure> {
    for row in connection.fetch_all(KEYS, values![json::write(&pairs)?]).await? {
        set.taken_keys.insert(key(&row)?);
    }
    Ok(())
}

pub(super) fn key(row: &Row) -> Result<(i64, String), Failure> {
    Ok((row.i64(0)?, row.text(1)?))
}

/// Loads the missing campaigns of all loaded runs. Also loads and locks the budgets of campaigns in which a reservation
/// may be made or released.
pub(crate) async fn campaigns(
    connection: &mut Connection,
    set: &mut WorkingSet,
    with_budget: &HashSet<i64>,
) -> Result<(), Failure> {
    let missing: BTreeSet<i64> =
        set.runs.values().map(|run| run.campaign_id).filter(|id| !set.campaigns.contains_key(id)).collect();
    if !missing.is_empty() {
        let ids: Vec<i64> = missing.into_iter().collect();
        for row in connection.fetch_all(CAMPAIGNS, values![ids]).await? {
            let campaign = campaign(&row)?;
            set.campaigns.insert(campaign.id, campaign);
        }
    }
    if with_budget.is_empty() {
        return Ok(());
    }
    let mut ids: Vec<i64> = with_budget.iter().copied().collect();
    ids.sort_unstable();
    take_in_budgets(set, &connection.fetch_all(BUDGETS, values![ids]).await?)
}

pub(super) fn take_in_budgets(set: &mut WorkingSet, rows: &[Row]) -> Result<(), Failure> {
    let mut lines: BTreeMap<i64, Vec<BudgetLine>> = BTreeMap::new();
    for row in rows {
        let resource = Resource::parse(row.str(1)?)
            .ok_or_else(|| Failure::unreadable("a budget", &"its resource is unknown to this release"))?;
        lines.entry(row.i64(0)?).or_default().push(BudgetLine {
            resource,
            cap: row.opt_i64(2)?.map(from_stored),
            used: from_stored(row.i64(3)?),
            reserved: from_stored(row.i64(4)?),
        });
    }
    for (id, lines) in lines {
        if let Some(campaign) = set.campaigns.get_mut(&id) {
            campaign.budget_before.clone_from(&lines);
            campaign.budget = lines;
        }
    }
    Ok(())
}

pub(super) fn take_in(set: &mut WorkingSet, rows: &[Row]) -> Result<(), Failure> {
    for row in rows {
        let Some(mut step) = leased_step(set, row)? else { continue };
        if let Some(rank) = row.opt_i64(22)? {
            step.place = Place::Ready { rank, latest_start: row.opt_i64(23)? };
        } else if let Some(not_before) = row.opt_i64(24)? {
            step.place = Place::Timer { not_before, for_window: row.opt_i64(28)?.unwrap_or(0) != 0 };
        } else if let Some(resource) = row.opt_str(25)? {
            let resource = Resource::parse(resource)
                .ok_or_else(|| Failure::unreadable("a blocked step", &"its resource is unknown to this release"))?;
            step.place = Place::Blocked { resource, told: row.opt_i64(26)?.unwrap_or(0) != 0 };
        }
        step.place_before = step.place.clone();
        set.routes.entry(step.route_id).or_insert(row.text(27)?);
        set.add_step(step);
    }
    Ok(())
}

pub(super) fn run(row: &Row) -> Result<Run, Failure> {
    let status = row.str(3)?;
    let status = RunStatus::parse(status)
        .ok_or_else(|| Failure::unreadable("the status of a run", &format!("`{status}` is none")))?;
    let finished_at = row.opt_i64(12)?;
    Ok(Run {
        id: row.i64(0)?,
        public_id: public_id::<RunId>(row.str(1)?, "a run's id")?,
        campaign_id: row.i64(2)?,
        status,
        priority: row.i64(4)?,
        owner: row.opt_text(5)?,
        owner_epoch: row.i64(6)?,
        revision: row.i64(7)?,
        last_seq: row.i64(8)?,
        wake_seq: row.i64(9)?,
        folded_seq: row.i64(10)?,
        failure: row.opt_text(11)?,
        finished_at,
        stored_standing: (status, finished_at),
        decided: None,
        changed: false,
    })
}

/// Reads a step from columns 0 to 16, which all statements for steps share.
pub(super) fn step(row: &Row, campaign_id: i64) -> Result<Step, Failure> {
    let status = row.str(5)?;
    let reserved = read_reserved(row.opt_str(16)?)?;
    Ok(Step {
        id: row.i64(0)?,
        public_id: public_id::<StepId>(row.str(1)?, "a step's id")?,
        run_id: row.i64(2)?,
        campaign_id,
        key: row.text(3)?,
        route_id: row.i64(4)?,
        status: StepStatus::parse(status)
            .ok_or_else(|| Failure::unreadable("the status of a step", &format!("`{status}` is none")))?,
        epoch: row.i64(6)?,
        tries: row.i64(7)?,
        timeout_ms: from_stored(row.i64(8)?),
        cost_ms: from_stored(row.i64(9)?),
        reserve: read_amounts(row.opt_str(10)?)?,
        worker: row.opt_text(11)?,
        output_seq: None,
        failure: row.opt_text(12)?,
        started_at: row.opt_i64(13)?,
        finished_at: None,
        reported_epoch: row.opt_i64(14)?,
        reported_digest: row.opt_bytes(15)?,
        place_before: Place::Nowhere,
        place: Place::Nowhere,
        reserved_before: reserved.clone(),
        reserved,
        fresh: None,
        details: None,
        changed: false,
    })
}

/// Reads a step with its lease from columns 0 to 21. Returns none if its run is not loaded.
fn leased_step(set: &WorkingSet, row: &Row) -> Result<Option<Step>, Failure> {
    let Some(run) = set.runs.get(&row.i64(2)?) else { return Ok(None) };
    let mut step = step(row, run.campaign_id)?;
    if let (Some(epoch), Some(worker_id), Some(expires_at)) = (row.opt_i64(17)?, row.opt_i64(18)?, row.opt_i64(19)?) {
        let device = row.opt_i64(20)?;
        step.place = Place::Leased { epoch, worker_id, expires_at, device, exclusive: row.opt_i64(21)? == Some(1) };
        step.place_before = step.place.clone();
    }
    Ok(Some(step))
}

pub(super) fn campaign(row: &Row) -> Result<Campaign, Failure> {
    let schedule = row.opt_str(2)?.map(json::read).transpose();
    let vtime = row.i64(4)?;
    let wall = row.opt_i64(5)?.map(|cap| BudgetLine {
        resource: Resource::WallMs,
        cap: Some(from_stored(cap)),
        used: row.opt_i64(6).ok().flatten().map_or(0, from_stored),
        reserved: 0,
    });
    let budget: Vec<BudgetLine> = wall.into_iter().collect();
    Ok(Campaign {
        id: row.i64(0)?,
        created_at: row.i64(1)?,
        schedule: schedule.map_err(|error| Failure::unreadable("the schedule of a campaign", &error))?,
        weight: count_from_stored(row.i64(3)?),
        vtime_before: vtime,
        vtime,
        budget_before: budget.clone(),
        budget,
        freed: false,
    })
}

/// Parses a stored id, which can only be wrong in a damaged database.
pub(super) fn public_id<Id: std::str::FromStr>(text: &str, what: &'static str) -> Result<Id, Failure>
where
    Id::Err: std::fmt::Display,
{
    text.parse().map_err(|error: Id::Err| Failure::unreadable(what, &error))
}
