//! Hand-overs: a campaign is paused, all of its steps stop, and no server here owns it until its results are returned.

pub(crate) mod finish;
mod merge;

use nightshift_engine::store::{HandoverRecord, NewHandover};
use nightshift_protocol::api::HandoverState;
use nightshift_protocol::id::{CampaignId, HandoverId, RunId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::time::TimestampMs;

use super::{campaign, public_id, request, transition};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::scheduling::rows::Place;
use crate::scheduling::try_end;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

macro_rules! handover_query {
    ($tail:literal) => {
        concat!(
            "SELECT h.public_id, c.public_id AS campaign, h.state, h.key, h.runs, h.digest, h.author, h.created_at_ms, \
             h.ended_at_ms FROM handover h JOIN campaign c ON c.id = h.campaign_id ",
            $tail
        )
    };
}

/// Refuses to control a run whose campaign is handed over.
pub(crate) async fn refuse_if_handed_over(connection: &mut Connection, run_id: i64) -> Result<(), Failure> {
    let sql = handover_query!(
        "WHERE h.campaign_id = (SELECT campaign_id FROM run WHERE id = $1) AND h.state IN ('leaving', 'out')"
    );
    match connection.fetch_optional(sql, values![run_id]).await? {
        None => Ok(()),
        Some(row) => Err(handed_over(&record(&row)?)),
    }
}

fn handed_over(handover: &HandoverRecord) -> Failure {
    let (campaign, id, by) = (&handover.campaign, &handover.id, &handover.by);
    let message = format!(
        "{campaign} is handed over to another machine ({id}, by {by}): bring its results back with `nightshift handover \
         finish FILE`, or take it back without them with `nightshift handover cancel {}`",
        campaign.short()
    );
    Failure::refused("campaign.handed_over", message)
}

pub(crate) async fn load(connection: &mut Connection, id: &HandoverId) -> Result<HandoverRecord, Failure> {
    let row = connection.fetch_optional(handover_query!("WHERE h.public_id = $1"), values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("handover", id.as_str()))?)
}

pub(crate) async fn open(
    connection: &mut Connection,
    campaign: Option<&CampaignId>,
) -> Result<Vec<HandoverRecord>, Failure> {
    let sql = handover_query!(
        "WHERE h.state IN ('leaving', 'out') AND (CAST($1 AS TEXT) IS NULL OR c.public_id = $1) ORDER BY h.id"
    );
    let campaign = campaign.map(|id| id.as_str().to_owned());
    connection.fetch_all(sql, values![campaign]).await?.iter().map(record).collect()
}

pub(crate) async fn begin(transaction: &mut Transaction<'_>, new: &NewHandover) -> Result<HandoverRecord, Failure> {
    let campaign_id = campaign::key_of(transaction.connection, new.campaign.as_str()).await?;
    let mut held = unfinished_runs(transaction, campaign_id).await?;
    if let Some(handover) = open(transaction.connection, Some(&new.campaign)).await?.pop() {
        return if handover.state == HandoverState::Leaving { Ok(handover) } else { Err(handed_over(&handover)) };
    }
    let mut run_ids: Vec<i64> = held.set.runs.keys().copied().collect();
    run_ids.sort_unstable();
    if run_ids.is_empty() {
        let message = format!("every run of {} is over: there is nothing left to hand over", new.campaign);
        return Err(Failure::refused("handover.nothing_left", message));
    }
    let mut running: Vec<RunId> = Vec::new();
    for run_id in run_ids {
        let run = held.set.run(run_id)?;
        match run.status {
            RunStatus::Running => running.push(run.public_id.clone()),
            RunStatus::Cancelling => {
                let message = format!("{} is being cancelled: try again when that is done", run.public_id);
                return Err(Failure::refused("handover.cancelling", message));
            }
            _ => continue,
        }
        transition::apply(&mut held.set, run_id, RunTransition::Pause, Some(&new.by), new.at)?;
    }
    held.write(transaction, new.at).await?;
    let sql = "INSERT INTO handover (public_id, campaign_id, state, key, runs, author, created_at_ms) \
               VALUES ($1, $2, 'leaving', $3, $4, $5, $6)";
    let by = json::clean(&new.by).into_owned();
    let values = values![new.id.as_str(), campaign_id, new.key.as_str(), json::write(&running)?, by, new.at.0];
    transaction.connection.execute(sql, values).await?;
    tracing::info!(campaign.id = %new.campaign, handover.id = %new.id, "a campaign is being handed over");
    load(transaction.connection, &new.id).await
}

pub(crate) async fn check_out(
    transaction: &mut Transaction<'_>,
    id: &HandoverId,
    by_force: bool,
    at: TimestampMs,
) -> Result<HandoverRecord, Failure> {
    let campaign = load(transaction.connection, id).await?.campaign;
    let campaign_id = campaign::key_of(transaction.connection, campaign.as_str()).await?;
    let mut held = unfinished_runs(transaction, campaign_id).await?;
    // Read again under the locks of the runs.
    let handover = load(transaction.connection, id).await?;
    if handover.state != HandoverState::Leaving {
        return Ok(handover);
    }
    let set = &mut held.set;
    let in_flight = transition::in_place(set, |place| matches!(place, Place::Leased { .. }));
    if !in_flight.is_empty() && !by_force {
        return Ok(handover);
    }
    for step_id in in_flight {
        try_end::free(set, step_id, at)?;
    }
    // Each step waits only for its run to resume.
    for step_id in transition::in_place(set, |place| matches!(place, Place::Timer { .. } | Place::Blocked { .. })) {
        crate::scheduling::admit::release(set, step_id)?;
        set.put(step_id, Place::Nowhere)?;
    }
    let run_ids: Vec<i64> = set.runs.keys().copied().collect();
    held.write(transaction, at).await?;
    // The higher epoch fences off a decision in progress.
    let sql = any_of!("UPDATE run SET owner_id = NULL, owner_epoch = owner_epoch + 1 WHERE id", "$1", "");
    transaction.connection.execute(sql, values![run_ids]).await?;
    let sql = "UPDATE handover SET state = 'out' WHERE public_id = $1";
    transaction.connection.execute(sql, values![id.as_str()]).await?;
    Ok(HandoverRecord { state: HandoverState::Out, ..handover })
}

pub(crate) async fn cancel(
    transaction: &mut Transaction<'_>,
    campaign: &CampaignId,
    by: &str,
    at: TimestampMs,
) -> Result<HandoverRecord, Failure> {
    let campaign_id = campaign::key_of(transaction.connection, campaign.as_str()).await?;
    let held = unfinished_runs(transaction, campaign_id).await?;
    let Some(handover) = open(transaction.connection, Some(campaign)).await?.pop() else {
        let message = format!("{campaign} is not handed over: nothing was changed");
        return Err(Failure::refused("handover.none", message));
    };
    resume(transaction, held, &handover.runs, by, at).await?;
    let sql = "UPDATE handover SET state = 'cancelled', ended_at_ms = $2 WHERE public_id = $1";
    transaction.connection.execute(sql, values![handover.id.as_str(), at.0]).await?;
    tracing::info!(campaign.id = %campaign, handover.id = %handover.id, by, "a hand-over was cancelled");
    Ok(HandoverRecord { state: HandoverState::Cancelled, ended_at: Some(at), ..handover })
}

/// Locks the unfinished runs of a campaign with their open steps.
///
/// Failed runs are locked too, so that a concurrent retry comes first or finds the hand-over.
async fn unfinished_runs(transaction: &mut Transaction<'_>, campaign_id: i64) -> Result<LockedRows, Failure> {
    let sql = "SELECT id FROM run WHERE campaign_id = $1 AND status NOT IN ('completed', 'cancelled') ORDER BY id";
    let rows = transaction.connection.fetch_all(sql, values![campaign_id]).await?;
    let run_ids = rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?;
    let mut held =
        LockedRows::load(transaction, LoadRequest { run_ids, open_steps: true, ..LoadRequest::default() }).await?;
    // A run may have ended before it was locked.
    held.set.runs.retain(|_, run| !run.status.is_final());
    Ok(held)
}

/// Resumes the paused ones among the runs.
async fn resume(
    transaction: &mut Transaction<'_>,
    mut held: LockedRows,
    runs: &[RunId],
    by: &str,
    at: TimestampMs,
) -> Result<(), Failure> {
    let mut run_ids: Vec<i64> = runs.iter().filter_map(|run| held.set.run_ids.get(run.as_str()).copied()).collect();
    run_ids.sort_unstable();
    for run_id in run_ids {
        if held.set.runs.get(&run_id).is_some_and(|run| run.status == RunStatus::Paused) {
            request::renew(transaction.connection, run_id, at).await?;
            transition::apply(&mut held.set, run_id, RunTransition::Resume, Some(by), at)?;
        }
    }
    held.write(transaction, at).await?;
    Ok(())
}

fn record(row: &Row) -> Result<HandoverRecord, Failure> {
    let id = row.str("public_id")?;
    let state = row.str("state")?;
    let runs = json::read(row.str("runs")?)
        .map_err(|error| Failure::unreadable(format!("the runs of hand-over {id}"), &error))?;
    Ok(HandoverRecord {
        id: public_id(id, "a hand-over's id")?,
        campaign: public_id(row.str("campaign")?, "a campaign's id")?,
        state: HandoverState::parse(state)
            .ok_or_else(|| Failure::unreadable("the state of a hand-over", &format!("`{state}` is none")))?,
        key: row.text("key")?,
        runs,
        digest: row.opt_text("digest")?,
        by: row.text("author")?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        ended_at: row.opt_i64("ended_at_ms")?.map(TimestampMs),
    })
}
