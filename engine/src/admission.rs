//! May a step begin now? Pure: the campaign's window, its budget and its share beside other campaigns.
//!
//! The store asks in the transaction that would make a step ready, with what is stored at that moment, and stores the
//! answer: a ready row, a timer, or a step that is blocked until a budget has room.

use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

use crate::window::{self, Opening};

/// Virtual time of a campaign of weight 1 for a millisecond of work. Fine enough that weights count for short steps too.
pub const VIRTUAL_PER_MS: i64 = 1_000;
/// Head start that one point of priority is worth, in milliseconds of a campaign of weight 1.
pub const HEAD_START_MS: i64 = 60_000;

/// What is known of a campaign when one of its steps is wanted.
#[derive(Debug, Clone)]
pub struct CampaignFacts<'a> {
    /// When it may work.
    pub schedule: Option<&'a Schedule>,
    /// Share beside others, from 1.
    pub weight: u32,
    /// Where its virtual time stands: what its steps cost so far, over its weight.
    pub vtime: i64,
    /// When it was created: its wall time counts from here.
    pub created_at: TimestampMs,
    /// Its budget; resources that are not listed are unlimited.
    pub budget: &'a [BudgetLine],
}

/// What is known of the step.
#[derive(Debug, Clone)]
pub struct StepFacts<'a> {
    /// Longest time of one try, in milliseconds.
    pub timeout_ms: u64,
    /// Expected time of one try, in milliseconds: what it costs the campaign in its share.
    pub cost_ms: u64,
    /// What is to be set aside.
    pub reserve: &'a [Amount],
    /// Head start of its run.
    pub priority: i32,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may begin.
    Ready {
        /// Its place among the ready steps of its route: lower ones go first.
        rank: i64,
        /// Where the campaign's virtual time stands from now on.
        vtime: i64,
        /// After this moment it must not begin: it could not end before the window closes, or the campaign's wall time is
        /// over.
        latest_start: Option<TimestampMs>,
    },
    /// Not before this moment.
    Wait {
        /// When to ask again.
        until: TimestampMs,
    },
    /// Not before somebody gives back some of this.
    Blocked {
        /// Of what.
        resource: Resource,
    },
    /// Never: the campaign cannot afford it.
    Exhausted {
        /// What is used up.
        resource: Resource,
    },
}

/// The head start of a priority, in virtual time. A rank plus the head start that it was given is the step's virtual
/// start: the virtual time of the whole store is the largest one of the steps that began. A change of priority moves
/// the rank by the difference of the head starts.
#[must_use]
pub fn head_start(priority: i32) -> i64 {
    i64::from(priority).saturating_mul(HEAD_START_MS * VIRTUAL_PER_MS)
}

/// Decides. `virtual_now` is the virtual time of the whole store, see [`head_start`]: a campaign that was idle begins
/// there, so that it does not make up for the time in which it wanted nothing.
#[must_use]
pub fn admit(campaign: &CampaignFacts<'_>, step: &StepFacts<'_>, virtual_now: i64, at: TimestampMs) -> Admission {
    let opening = campaign.schedule.map(|schedule| window::opening(schedule, at, step.timeout_ms));
    let earliest = match opening {
        Some(Opening::Closed { opens_at }) => opens_at,
        None | Some(Opening::Open { .. }) => at,
    };
    // What is used up does not come back with the next window: nobody has to wait for that answer.
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

/// What does not suffice for a step that begins at `earliest`, whatever is given back.
fn exhausted(campaign: &CampaignFacts<'_>, step: &StepFacts<'_>, earliest: TimestampMs) -> Option<Resource> {
    if wall_time(campaign).is_some_and(|cap| earliest.since_ms(campaign.created_at) >= cap) {
        return Some(Resource::WallMs);
    }
    reserved(campaign, step).find(|(line, wanted)| line.is_exhausted_for(*wanted)).map(|(line, _)| line.resource)
}

/// For how long from the campaign's creation steps may begin, in milliseconds.
fn wall_time(campaign: &CampaignFacts<'_>) -> Option<u64> {
    campaign.budget.iter().find(|line| line.resource == Resource::WallMs).and_then(|line| line.cap)
}

/// The lines that the step wants something of, with how much. Wall time passes by itself and is never set aside.
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
