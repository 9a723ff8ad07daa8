//! Schedules a step: gives it a ready row or a timer, or blocks it on its campaign's budget. No other code makes a step
//! ready.

use nightshift_engine::admission::{Admission, CampaignFacts, StepFacts, admit as decide};
use nightshift_engine::event::Event;
use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::time::TimestampMs;

use super::event_text::EventText;
use super::rows::{Campaign, Place};
use super::working_set::WorkingSet;
use crate::failure::Failure;
use crate::number::from_stored;

/// Maximum cost of a step, which keeps the virtual time from overflowing.
const MAX_COST_MS: u64 = 366 * 24 * 60 * 60 * 1_000;

/// Decides when a scheduled step of a running run may begin, and moves it to the matching place.
///
/// Its run, campaign and budget must be loaded. A step that is ready already is decided again after its reservation is
/// released.
pub(crate) fn admit(set: &mut WorkingSet, step_id: i64, at: TimestampMs) -> Result<(), Failure> {
    let (run_id, campaign_id, status) = {
        let step = set.step(step_id)?;
        (step.run_id, step.campaign_id, step.status)
    };
    if status != StepStatus::Scheduled || !set.is_running(run_id)? {
        return Ok(());
    }
    release(set, step_id)?;
    let priority = i32::try_from(set.run(run_id)?.priority).unwrap_or(i32::MAX);
    let answer = {
        let step = set.step(step_id)?;
        let campaign =
            set.campaigns.get(&campaign_id).ok_or_else(|| Failure::unreadable("a campaign", &"not loaded"))?;
        let facts = CampaignFacts {
            schedule: campaign.schedule.as_ref(),
            weight: campaign.weight,
            vtime: campaign.vtime,
            created_at: TimestampMs(campaign.created_at),
            budget: &campaign.budget,
        };
        let wanted = StepFacts {
            timeout_ms: step.timeout_ms,
            cost_ms: step.cost_ms.min(MAX_COST_MS),
            reserve: &step.reserve,
            priority,
        };
        decide(&facts, &wanted, set.virtual_now, at)
    };
    match answer {
        Admission::Ready { rank, vtime, latest_start } => {
            reserve_amounts(set, step_id, campaign_id)?;
            set.campaign_mut(campaign_id)?.vtime = vtime;
            set.put(step_id, Place::Ready { rank, latest_start: latest_start.map(|moment| moment.0) })
        }
        Admission::Wait { until } => set.put(step_id, Place::Timer { not_before: until.0, for_window: true }),
        Admission::Blocked { resource } => {
            let told = was_told(set, step_id)?;
            set.put(step_id, Place::Blocked { resource, told })
        }
        Admission::Exhausted { resource } => mark_exhausted(set, step_id, resource, at),
    }
}

/// Releases the whole reservation of a step that left the ready list before it began.
pub(crate) fn release(set: &mut WorkingSet, step_id: i64) -> Result<(), Failure> {
    settle(set, step_id, |_| 0)
}

/// Ends the reservation of a step. `used` returns the used part of an amount, at most the amount itself.
pub(crate) fn settle(set: &mut WorkingSet, step_id: i64, used: impl Fn(&Amount) -> u64) -> Result<(), Failure> {
    let step = set.step_mut(step_id)?;
    if step.reserved.is_empty() {
        return Ok(());
    }
    let (campaign_id, amounts) = (step.campaign_id, std::mem::take(&mut step.reserved));
    let campaign = set.campaign_mut(campaign_id)?;
    for amount in amounts {
        if let Some(line) = campaign.line_mut(amount.resource) {
            line.reserved = line.reserved.saturating_sub(amount.amount);
            line.used = line.used.saturating_add(used(&amount).min(amount.amount));
            campaign.freed = true;
        }
    }
    Ok(())
}

fn reserve_amounts(set: &mut WorkingSet, step_id: i64, campaign_id: i64) -> Result<(), Failure> {
    let step = set.steps.get_mut(&step_id).ok_or_else(|| Failure::unreadable("a step", &"not loaded"))?;
    if step.reserve.is_empty() {
        return Ok(());
    }
    let campaign =
        set.campaigns.get_mut(&campaign_id).ok_or_else(|| Failure::unreadable("a campaign", &"not loaded"))?;
    step.reserved = reservable(campaign, &step.reserve);
    for amount in &step.reserved {
        if let Some(line) = campaign.line_mut(amount.resource) {
            line.reserved = line.reserved.saturating_add(amount.amount);
        }
    }
    Ok(())
}

/// Returns the amounts that the campaign's budget counts: one per resource, without wall time.
fn reservable(campaign: &Campaign, wanted: &[Amount]) -> Vec<Amount> {
    let counted = |resource: Resource| campaign.budget.iter().any(|line: &BudgetLine| line.resource == resource);
    let mut amounts: Vec<Amount> = Vec::with_capacity(wanted.len());
    for want in wanted.iter().filter(|want| want.resource != Resource::WallMs && counted(want.resource)) {
        match amounts.iter_mut().find(|amount| amount.resource == want.resource) {
            Some(amount) => amount.amount = amount.amount.saturating_add(want.amount),
            None => amounts.push(*want),
        }
    }
    amounts
}

fn was_told(set: &WorkingSet, step_id: i64) -> Result<bool, Failure> {
    Ok(matches!(set.step(step_id)?.place, Place::Blocked { told: true, .. }))
}

/// Blocks the step, and logs once that the campaign's budget is exhausted. The workflow ends the run.
fn mark_exhausted(set: &mut WorkingSet, step_id: i64, resource: Resource, at: TimestampMs) -> Result<(), Failure> {
    if !was_told(set, step_id)? {
        let step = set.step(step_id)?;
        let (run_id, key) = (step.run_id, step.key.clone());
        set.append(run_id, at.0, EventText::of(&Event::BudgetExhausted { key, resource })?)?;
    }
    set.put(step_id, Place::Blocked { resource, told: true })
}

/// Parses a stored list of amounts; see the schema's `reserve`.
pub(crate) fn read_amounts(text: Option<&str>) -> Result<Vec<Amount>, Failure> {
    text.map_or_else(
        || Ok(Vec::new()),
        |text| crate::json::read(text).map_err(|error| Failure::unreadable("what a step sets aside", &error)),
    )
}

/// Parses `resource=amount,…`, the form in which queries for steps return reservations.
pub(crate) fn read_reserved(text: Option<&str>) -> Result<Vec<Amount>, Failure> {
    let unreadable = || Failure::unreadable("a reservation", &"it is no resource with an amount");
    let parts = text.into_iter().flat_map(|text| text.split(','));
    parts
        .map(|part| {
            let (resource, amount) = part.split_once('=').ok_or_else(unreadable)?;
            let resource = Resource::parse(resource).ok_or_else(unreadable)?;
            let amount: i64 = amount.parse().map_err(|_| unreadable())?;
            Ok(Amount { resource, amount: from_stored(amount) })
        })
        .collect()
}
