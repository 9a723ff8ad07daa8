//! Validates the limits of a campaign before they are stored.

use nightshift_engine::window::time_zone;
use nightshift_optimizer::strategy::timeout_ms;
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::campaign::MAX_WEIGHT;
use nightshift_protocol::schedule::{DAY_MINUTES, Schedule, Window};
use nightshift_protocol::step::StepKind;

use crate::error::ApiFailure;

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;

/// Refuses a budget with which no step could begin.
pub(crate) fn examine_budget(caps: &BudgetCaps) -> Result<(), ApiFailure> {
    match Resource::ALL.into_iter().find(|resource| caps.of(*resource) == Some(0)) {
        Some(resource) => Err(ApiFailure::bad(
            "campaign.invalid_budget",
            format!("a budget of 0 for `{}` lets nothing begin: leave it out for no limit", resource.as_str()),
        )),
        None => Ok(()),
    }
}

/// Refuses an unknown time zone, and a window in which the longest step could never begin.
pub(crate) fn examine_schedule(schedule: &Schedule) -> Result<(), ApiFailure> {
    time_zone(&schedule.time_zone).map_err(|error| ApiFailure::bad("campaign.bad_schedule", error.to_string()))?;
    let least_ms = StepKind::ALL.into_iter().map(timeout_ms).max().unwrap_or(0);
    // A timer fires slightly late, so a window of exactly this length would always be too short.
    if length_ms(schedule.window) <= least_ms {
        return Err(ApiFailure::bad(
            "campaign.window_too_short",
            format!(
                "in the window {} the longest step could never begin, because it may take {} minutes: \
                 widen the window to more than that",
                schedule.window,
                least_ms.div_ceil(MINUTE_MS)
            ),
        ));
    }
    Ok(())
}

/// Refuses an invalid share.
pub(crate) fn examine_weight(weight: u32) -> Result<(), ApiFailure> {
    if !(1..=MAX_WEIGHT).contains(&weight) {
        return Err(ApiFailure::bad(
            "campaign.invalid_weight",
            format!("a weight is from 1 to {MAX_WEIGHT}, not {weight}"),
        ));
    }
    Ok(())
}

/// Returns the length of the window on a day without a clock change.
fn length_ms(window: Window) -> u64 {
    let minutes = (window.end_minute() + DAY_MINUTES - window.begin_minute()) % DAY_MINUTES;
    u64::from(minutes) * MINUTE_MS
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_window_over_midnight_has_the_length_of_both_sides() {
        assert_eq!(length_ms("20:00-07:30".parse().unwrap()), 690 * MINUTE_MS);
        assert_eq!(length_ms("07:30-20:00".parse().unwrap()), 750 * MINUTE_MS);
    }

    #[test]
    fn a_budget_of_nothing_is_refused_and_one_without_limits_is_not() {
        assert!(examine_budget(&BudgetCaps::default()).is_ok());
        assert!(examine_budget(&BudgetCaps { tokens: Some(0), ..BudgetCaps::default() }).is_err());
        assert!(examine_budget(&BudgetCaps { tokens: Some(1), ..BudgetCaps::default() }).is_ok());
    }

    #[test]
    fn a_share_is_at_least_one() {
        assert!(examine_weight(0).is_err() && examine_weight(MAX_WEIGHT + 1).is_err());
        assert!(examine_weight(1).is_ok());
    }
}
