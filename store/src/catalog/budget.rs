//! Caps and usage of a campaign: amounts are reserved before the work and settled after it.

use std::collections::HashSet;

use nightshift_engine::store::Reservation;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine, Resource};
use nightshift_protocol::id::{CampaignId, StepId};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::time::TimestampMs;

use super::step::resource_of;
use super::step_runs::runs_of_campaign;
use super::{campaign, schedule};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::number::{from_stored, to_stored};
use crate::scheduling::load;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::scheduling::rows::{Place, Step};
use crate::scheduling::unblock;
use crate::scheduling::working_set::WorkingSet;
use crate::transaction::Transaction;
use crate::value::values;

pub(crate) async fn load(connection: &mut Connection, id: &CampaignId) -> Result<Vec<BudgetLine>, Failure> {
    let campaign_id = campaign::key_of(connection, id.as_str()).await?;
    let sql = "SELECT resource, cap, used, reserved FROM budget WHERE campaign_id = $1";
    let mut lines = Vec::new();
    for row in connection.fetch_all(sql, values![campaign_id]).await? {
        lines.push(BudgetLine {
            resource: resource_of(row.str(0)?)?,
            cap: row.opt_i64(1)?.map(from_stored),
            used: from_stored(row.i64(2)?),
            reserved: from_stored(row.i64(3)?),
        });
    }
    lines.sort_unstable_by_key(|line| line.resource);
    Ok(lines)
}

/// Runs with blocked steps, which may become ready under other caps.
const OF_BLOCKED: &str = "SELECT DISTINCT s.run_id FROM blocked b JOIN step s ON s.id = b.step_id \
     WHERE b.campaign_id = $1 ORDER BY s.run_id";

/// Changes the caps. Blocked steps are reconsidered in batches until none becomes ready.
///
/// If the wall time changes, ready steps are admitted again, because it determines their latest start.
pub(crate) async fn set_caps(
    transaction: &mut Transaction<'_>,
    id: &CampaignId,
    caps: &BudgetCaps,
    at: TimestampMs,
) -> Result<(), Failure> {
    let campaign_id = campaign::key_of(transaction.connection, id.as_str()).await?;
    let wall_time_changes = wall_time(transaction.connection, campaign_id).await? != caps.wall_ms;
    // Runs come before budgets in the lock order, so runs with steps that may become ready are loaded first. While all
    // runs are locked, no step becomes ready under the earlier wall time.
    let run_ids = if wall_time_changes {
        runs_of_campaign(transaction, campaign_id).await?
    } else {
        let rows = transaction.connection.fetch_all(OF_BLOCKED, values![campaign_id]).await?;
        rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?
    };
    let mut held = LockedRows::load(transaction, LoadRequest { run_ids, ..LoadRequest::default() }).await?;
    let step_ids = if wall_time_changes {
        schedule::of_the_window(transaction.connection, campaign_id).await?
    } else {
        Vec::new()
    };
    load::steps(transaction.connection, &mut held.set, step_ids.clone()).await?;
    for resource in Resource::ALL {
        transaction
            .connection
            .execute(
                "UPDATE budget SET cap = $3 WHERE campaign_id = $1 AND resource = $2",
                values![campaign_id, resource.as_str(), caps.of(resource).map(to_stored)],
            )
            .await?;
    }
    if held.set.runs.is_empty() {
        return Ok(());
    }
    held.set.campaigns.clear();
    load::campaigns(transaction.connection, &mut held.set, &HashSet::from([campaign_id])).await?;
    held.set.campaign_mut(campaign_id)?.freed = true;
    schedule::admit_again(&mut held.set, step_ids, at)?;
    held.write(transaction, at).await?;
    Ok(())
}

/// Running runs of the oldest blocked steps of a campaign.
const OF_OLDEST_BLOCKED: &str = "SELECT DISTINCT d.run_id FROM (SELECT s.run_id FROM blocked b \
     JOIN step s ON s.id = b.step_id JOIN run r ON r.id = s.run_id AND r.status = 'running' \
     WHERE b.campaign_id = $1 ORDER BY b.step_id LIMIT $2) d ORDER BY d.run_id";

/// Reconsiders blocked steps of a campaign. Returns how many of them became ready.
pub(crate) async fn reconsider(
    transaction: &mut Transaction<'_>,
    campaign_id: i64,
    at: TimestampMs,
) -> Result<u64, Failure> {
    let rows = transaction.connection.fetch_all(OF_OLDEST_BLOCKED, values![campaign_id, load::MAX_UNBLOCKED]).await?;
    let run_ids = rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?;
    let mut held = LockedRows::load(transaction, LoadRequest { run_ids, ..LoadRequest::default() }).await?;
    held.set.campaigns.values_mut().for_each(|campaign| campaign.freed = true);
    unblock::look_again(transaction.connection, &mut held.set, at).await?;
    let became_ready =
        |step: &&Step| matches!((&step.place_before, &step.place), (Place::Blocked { .. }, Place::Ready { .. }));
    let count = held.set.steps.values().filter(became_ready).count();
    held.write(transaction, at).await?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Returns the time within which the campaign's steps may begin, in milliseconds from its creation.
async fn wall_time(connection: &mut Connection, campaign_id: i64) -> Result<Option<u64>, Failure> {
    let sql = "SELECT cap FROM budget WHERE campaign_id = $1 AND resource = $2";
    let row = connection.fetch_optional(sql, values![campaign_id, Resource::WallMs.as_str()]).await?;
    Ok(row.map(|row| row.opt_i64(0)).transpose()?.flatten().map(from_stored))
}

/// Reserves all amounts for a leased step, or none.
pub(crate) async fn reserve(
    transaction: &mut Transaction<'_>,
    step: &StepId,
    epoch: u64,
    amounts: &[Amount],
    at: TimestampMs,
) -> Result<Reservation, Failure> {
    let mut held = LockedRows::load(transaction, of_step(step)).await?;
    let set = &mut held.set;
    let Some((step_id, campaign_id)) = leased(set, step, epoch)? else { return Ok(Reservation::LeaseLost) };
    let campaign = set.campaign_mut(campaign_id)?;
    for amount in &merged(amounts) {
        let Some(line) = campaign.line_mut(amount.resource) else { continue };
        if line.is_exhausted_for(amount.amount) {
            return Ok(Reservation::Exhausted(*line));
        }
        if !line.fits(amount.amount) {
            return Ok(Reservation::Wait(*line));
        }
    }
    let mut counted = Vec::new();
    for amount in merged(amounts) {
        if let Some(line) = campaign.line_mut(amount.resource) {
            line.reserved = line.reserved.saturating_add(amount.amount);
            counted.push(amount);
        }
    }
    let step = set.step_mut(step_id)?;
    for amount in counted {
        match step.reserved.iter_mut().find(|aside| aside.resource == amount.resource) {
            Some(aside) => aside.amount = aside.amount.saturating_add(amount.amount),
            None => step.reserved.push(amount),
        }
    }
    held.write(transaction, at).await?;
    Ok(Reservation::Granted)
}

/// Releases a reservation of [`reserve`] and records the used part. After the end of the lease nothing is left to
/// release, because its end settled it.
pub(crate) async fn settle(
    transaction: &mut Transaction<'_>,
    step: &StepId,
    epoch: u64,
    released: &[Amount],
    used: &[Amount],
    at: TimestampMs,
) -> Result<(), Failure> {
    let mut held = LockedRows::load(transaction, of_step(step)).await?;
    let Some((step_id, _)) = leased(&held.set, step, epoch)? else { return Ok(()) };
    let bounded: Vec<Amount> = merged(used)
        .into_iter()
        .map(|used| Amount { amount: used.amount.min(of(&merged(released), used.resource)), ..used })
        .collect();
    give_back(&mut held.set, step_id, released, &bounded)?;
    held.write(transaction, at).await?;
    Ok(())
}

/// Releases amounts that are reserved for a step, and counts others as used.
///
/// An amount that is no longer reserved was counted as used when the lease ended, and is not counted again.
pub(crate) fn give_back(
    set: &mut WorkingSet,
    step_id: i64,
    released: &[Amount],
    used: &[Amount],
) -> Result<(), Failure> {
    let (released, used) = (merged(released), merged(used));
    let step = set.step_mut(step_id)?;
    let campaign_id = step.campaign_id;
    let mut settled = Vec::new();
    for resource in Resource::ALL {
        let (wanted, used) = (of(&released, resource), of(&used, resource));
        let aside = step.reserved.iter_mut().find(|aside| aside.resource == resource);
        let freed = aside.map_or(0, |aside| {
            let freed = wanted.min(aside.amount);
            aside.amount -= freed;
            freed
        });
        settled.push((resource, freed, used.saturating_sub(wanted - freed)));
    }
    step.reserved.retain(|aside| aside.amount > 0);
    let campaign = set.campaign_mut(campaign_id)?;
    for (resource, freed, used) in settled {
        let Some(line) = campaign.line_mut(resource) else { continue };
        line.reserved = line.reserved.saturating_sub(freed);
        line.used = line.used.saturating_add(used);
        campaign.freed |= freed > 0;
    }
    Ok(())
}

/// Selects a step with its run and its campaign's budget.
pub(crate) fn of_step(step: &StepId) -> LoadRequest {
    LoadRequest { steps: vec![step.as_str().to_owned()], ..LoadRequest::default() }
}

/// Returns the internal keys of a step and its campaign, if it is leased under this epoch.
fn leased(set: &WorkingSet, step: &StepId, epoch: u64) -> Result<Option<(i64, i64)>, Failure> {
    let held = set.step_of(step).ok_or_else(|| Failure::not_found("step", step.as_str()))?;
    let fence_holds = held.status == StepStatus::Leased && i64::try_from(epoch).ok() == Some(held.epoch);
    Ok(fence_holds.then_some((held.id, held.campaign_id)))
}

/// Merges amounts to one per reservable resource.
fn merged(amounts: &[Amount]) -> Vec<Amount> {
    let sums = Resource::ALL.into_iter().filter(|resource| *resource != Resource::WallMs).map(|resource| {
        let all = amounts.iter().filter(|amount| amount.resource == resource);
        Amount { resource, amount: all.fold(0, |sum: u64, amount| sum.saturating_add(amount.amount)) }
    });
    sums.filter(|amount| amount.amount > 0).collect()
}

fn of(amounts: &[Amount], resource: Resource) -> u64 {
    amounts.iter().find(|amount| amount.resource == resource).map_or(0, |amount| amount.amount)
}
