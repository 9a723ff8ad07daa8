//! May a step begin now? Pure: the campaign's window, its budget and its share beside other campaigns.
//!
//! The store asks in the transaction that would make a step ready, with what is stored at that moment, and stores the
//! answer: a ready row, a timer, or a step that is blocked until a budget has room.

use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

use crate::window::{self, Opening};

/// Head start in virtual milliseconds that one point of priority is worth.
pub const HEAD_START_MS: i64 = 60_000;

/// What is known of a campaign when one of its steps is wanted.
#[derive(Debug, Clone)]
pub struct CampaignFacts<'a> {
    /// When it may work.
    pub schedule: Option<&'a Schedule>,
    /// Share beside others, from 1.
    pub weight: u32,
    /// Where its virtual time stands.
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
        /// After this moment it could not end before the window closes.
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

/// Decides. `virtual_now` is the virtual time of the whole store: that of the last step that began.
#[must_use]
pub fn admit(campaign: &CampaignFacts<'_>, step: &StepFacts<'_>, virtual_now: i64, at: TimestampMs) -> Admission {
    if let Some(line) = campaign.budget.iter().find(|line| line.resource == Resource::WallMs)
        && line.cap.is_some_and(|cap| at.since_ms(campaign.created_at) >= cap)
    {
        return Admission::Exhausted { resource: Resource::WallMs };
    }
    let latest_start = match campaign.schedule.map(|schedule| window::opening(schedule, at, step.timeout_ms)) {
        None => None,
        Some(Opening::Open { latest_start }) => Some(latest_start),
        Some(Opening::Closed { opens_at }) => return Admission::Wait { until: opens_at },
    };
    for wanted in step.reserve {
        let Some(line) = campaign.budget.iter().find(|line| line.resource == wanted.resource) else { continue };
        if line.is_exhausted_for(wanted.amount) {
            return Admission::Exhausted { resource: wanted.resource };
        }
        if !line.fits(wanted.amount) {
            return Admission::Blocked { resource: wanted.resource };
        }
    }
    let begin = campaign.vtime.max(virtual_now);
    let cost = i64::try_from(step.cost_ms.max(1)).unwrap_or(i64::MAX) / i64::from(campaign.weight.max(1));
    let head_start = i64::from(step.priority).saturating_mul(HEAD_START_MS);
    Admission::Ready { rank: begin.saturating_sub(head_start), vtime: begin.saturating_add(cost.max(1)), latest_start }
}
