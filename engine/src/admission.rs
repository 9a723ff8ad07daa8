//! Decides whether a step may begin now, from the campaign's window, budget and fair share. Pure.
//!
//! The store calls [`admit`] in the transaction that would make a step ready. It stores the answer: a ready row, a
//! timer, or a step that is blocked until a budget has room.

use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

use crate::window::{self, Opening};

/// Virtual time of a campaign of weight 1 for a millisecond of work. The resolution makes weights count for short steps
/// too.
pub const VIRTUAL_PER_MS: i64 = 1_000;
/// Head start of one point of priority, in milliseconds of a campaign of weight 1.
pub const HEAD_START_MS: i64 = 60_000;

/// Facts about the campaign of a step that is to be admitted.
#[derive(Debug, Clone)]
pub struct CampaignFacts<'a> {
    /// When its steps may run.
    pub schedule: Option<&'a Schedule>,
    /// Share relative to other campaigns, from 1.
    pub weight: u32,
    /// Virtual time: the cost of its steps so far, divided by its weight.
    pub vtime: i64,
    /// When it was created: its wall time counts from here.
    pub created_at: TimestampMs,
    /// Its budget; resources that are not listed are unlimited.
    pub budget: &'a [BudgetLine],
}

/// Facts about the step that is to be admitted.
#[derive(Debug, Clone)]
pub struct StepFacts<'a> {
    /// Timeout of one try, in milliseconds.
    pub timeout_ms: u64,
    /// Expected duration of one try, in milliseconds. It is charged to the campaign's share.
    pub cost_ms: u64,
    /// Amounts to reserve.
    pub reserve: &'a [Amount],
    /// Head start of its run.
    pub priority: i32,
}

/// The decision of [`admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The step may begin.
    Ready {
        /// Its rank among the ready steps of its route: lower ranks go first.
        rank: i64,
        /// The campaign's new virtual time.
        vtime: i64,
        /// The step must not begin after this time: it could not end before the window closes, or the campaign's wall
        /// time is over.
        latest_start: Option<TimestampMs>,
    },
    /// The step must not begin before this time.
    Wait {
        /// When to decide again.
        until: TimestampMs,
    },
    /// The step must not begin before some of this resource is released.
    Blocked {
        /// The resource.
        resource: Resource,
    },
    /// The step can never begin: the campaign's budget does not suffice.
    Exhausted {
        /// The exhausted resource.
        resource: Resource,
    },
}

/// Returns the head start of a priority, in virtual time.
///
/// Rank plus the head start at scheduling is the step's virtual start. The largest virtual start of a step that began
/// is the virtual time of the whole store. A change of priority moves the rank by the difference of the head starts.
#[must_use]
pub fn head_start(priority: i32) -> i64 {
    i64::from(priority).saturating_mul(HEAD_START_MS * VIRTUAL_PER_MS)
}

/// Decides whether a step may begin at `at`.
///
/// `virtual_now` is the virtual time of the whole store, see [`head_start`]. A campaign that was idle starts from
/// there, so that it gains no advantage from its idle time.
#[must_use]
pub fn admit(campaign: &CampaignFacts<'_>, step: &StepFacts<'_>, virtual_now: i64, at: TimestampMs) -> Admission {
    let opening = campaign.schedule.map(|schedule| window::opening(schedule, at, step.timeout_ms));
    let earliest = match opening {
        Some(Opening::Closed { opens_at }) => opens_at,
        None | Some(Opening::Open { .. }) => at,
    };
    // A used-up budget does not come back with the next window, so the step fails now instead of waiting.
    if let Some(resource) = exhausted(campaign, step, earliest) {
        return Admission::Exhausted { resource };
    }
    let in_window = match opening {
        None => None,
        Some(Opening::Open { latest_start }) => Some(latest_start),
        Some(Opening::Closed { opens_at }) => return Admission::Wait { until: opens_at },
    };
    let in_wall_time = wall_time(campaign).map(|cap| campaign.created_at.plus_ms(cap.saturating_sub(1)));
    let latest_start = in_window.into_iter().chain(in_wall_time).min();
    if let Some((line, _)) = reserved(campaign, step).find(|(line, wanted)| !line.fits(*wanted)) {
        return Admission::Blocked { resource: line.resource };
    }
    let start = campaign.vtime.max(virtual_now);
    let cost = i64::try_from(step.cost_ms.max(1)).unwrap_or(i64::MAX).saturating_mul(VIRTUAL_PER_MS);
    let share = (cost / i64::from(campaign.weight.max(1))).max(1);
    Admission::Ready {
        rank: start.saturating_sub(head_start(step.priority)),
        vtime: start.saturating_add(share),
        latest_start,
    }
}

/// Returns the resource that cannot suffice for a step that begins at `earliest`, even if all reservations are
/// released.
fn exhausted(campaign: &CampaignFacts<'_>, step: &StepFacts<'_>, earliest: TimestampMs) -> Option<Resource> {
    if wall_time(campaign).is_some_and(|cap| earliest.since_ms(campaign.created_at) >= cap) {
        return Some(Resource::WallMs);
    }
    reserved(campaign, step).find(|(line, wanted)| line.is_exhausted_for(*wanted)).map(|(line, _)| line.resource)
}

/// Returns the time after the campaign's creation within which steps may begin, in milliseconds.
fn wall_time(campaign: &CampaignFacts<'_>) -> Option<u64> {
    campaign.budget.iter().find(|line| line.resource == Resource::WallMs).and_then(|line| line.cap)
}

/// Returns the budget lines that the step reserves from, with the amounts. Wall time is never reserved.
fn reserved<'a>(
    campaign: &'a CampaignFacts<'_>,
    step: &'a StepFacts<'_>,
) -> impl Iterator<Item = (&'a BudgetLine, u64)> {
    campaign.budget.iter().filter(|line| line.resource != Resource::WallMs).filter_map(|line| {
        let of_this = step.reserve.iter().filter(|wanted| wanted.resource == line.resource);
        let wanted = of_this.fold(0_u64, |sum, wanted| sum.saturating_add(wanted.amount));
        (wanted > 0).then_some((line, wanted))
    })
}
