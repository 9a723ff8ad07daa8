//! Changes when a campaign may work, and its share.

use std::collections::HashSet;

use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

use super::campaign;
use super::step_runs::runs_of_campaign;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::scheduling::admit;
use crate::scheduling::load;
use crate::scheduling::locked_rows::LockedRows;
use crate::scheduling::rows::Place;
use crate::scheduling::working_set::WorkingSet;
use crate::transaction::Transaction;
use crate::value::values;

/// Steps that are ready or wait for the campaign's window, in the order of their scheduling. The row locks of the runs
/// decide which transaction comes first.
pub(crate) const OF_THE_WINDOW: &str = "SELECT step_id FROM ready WHERE campaign_id = $1 \
     UNION ALL \
     SELECT t.step_id FROM timer t JOIN step s ON s.id = t.step_id JOIN run r ON r.id = s.run_id \
      WHERE t.for_window = 1 AND r.campaign_id = $1 \
     ORDER BY step_id";

pub(crate) async fn set_schedule(
    transaction: &mut Transaction<'_>,
    id: &CampaignId,
    schedule: Option<&Schedule>,
    at: TimestampMs,
) -> Result<(), Failure> {
    let campaign_id = campaign::key_of(transaction.connection, id.as_str()).await?;
    let run_ids = runs_of_campaign(transaction, campaign_id).await?;
    let connection = &mut *transaction.connection;
    let mut set = WorkingSet { virtual_now: transaction.memory.virtual_now(), ..WorkingSet::default() };
    // While all runs are locked, no step becomes ready.
    load::runs(connection, &mut set, Vec::new(), Vec::new(), run_ids).await?;
    connection
        .execute(
            "UPDATE campaign SET schedule = $2 WHERE id = $1",
            values![campaign_id, schedule.map(json::write).transpose()?],
        )
        .await?;
    load::campaigns(connection, &mut set, &HashSet::from([campaign_id])).await?;
    let step_ids = of_the_window(connection, campaign_id).await?;
    load::steps(connection, &mut set, step_ids.clone()).await?;
    admit_again(&mut set, step_ids, at)?;
    LockedRows { set }.write(transaction, at).await?;
    Ok(())
}

/// Returns the steps of [`OF_THE_WINDOW`].
pub(crate) async fn of_the_window(connection: &mut Connection, campaign_id: i64) -> Result<Vec<i64>, Failure> {
    let rows = connection.fetch_all(OF_THE_WINDOW, values![campaign_id]).await?;
    rows.iter().map(|row| row.i64(0)).collect()
}

/// Admits loaded steps again that are ready or wait for a window.
pub(crate) fn admit_again(set: &mut WorkingSet, step_ids: Vec<i64>, at: TimestampMs) -> Result<(), Failure> {
    for id in step_ids {
        // The step may have been claimed, or its run paused, before the lock was taken.
        let Some(step) = set.steps.get(&id) else { continue };
        if matches!(step.place, Place::Ready { .. } | Place::Timer { for_window: true, .. })
            && set.run(step.run_id)?.status == RunStatus::Running
        {
            admit::admit(set, id, at)?;
        }
    }
    Ok(())
}

pub(crate) async fn set_weight(transaction: &mut Transaction<'_>, id: &CampaignId, weight: u32) -> Result<(), Failure> {
    let changed = transaction
        .connection
        .execute("UPDATE campaign SET weight = $2 WHERE public_id = $1", values![id.as_str(), weight.max(1)])
        .await?;
    if changed == 0 { Err(Failure::not_found("campaign", id.as_str())) } else { Ok(()) }
}
