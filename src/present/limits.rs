//! How budgets, times and schedules look.

use nightshift_protocol::budget::{BudgetLine, Resource};
use nightshift_protocol::schedule::Schedule;

/// Millionths of a dollar.
const MICROUSD: u64 = 1_000_000;

/// A resource in words.
pub(crate) fn resource(resource: Resource) -> &'static str {
    match resource {
        Resource::CostMicrousd => "cost",
        Resource::Tokens => "tokens",
        Resource::DeviceMs => "device time",
        Resource::Attempts => "attempts",
        Resource::WallMs => "wall time",
    }
}

/// An amount with its unit.
pub(crate) fn amount(resource: Resource, amount: u64) -> String {
    match resource {
        Resource::CostMicrousd => dollars(amount),
        Resource::DeviceMs | Resource::WallMs => duration(amount),
        Resource::Tokens | Resource::Attempts => amount.to_string(),
    }
}

/// Dollars with the digits that are not zero, two at least.
fn dollars(microusd: u64) -> String {
    let mut rest = format!("{:06}", microusd % MICROUSD);
    while rest.len() > 2 && rest.ends_with('0') {
        rest.pop();
    }
    format!("{}.{rest} USD", microusd / MICROUSD)
}

/// A time with its two largest units: `8h 30m`.
pub(crate) fn duration(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut left = ms;
    let mut parts = Vec::new();
    for (unit, unit_ms) in units {
        let count = left / unit_ms;
        left %= unit_ms;
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
        if parts.len() == 2 {
            break;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// When a campaign works.
pub(crate) fn schedule(schedule: Option<&Schedule>) -> String {
    schedule.map_or_else(
        || "at any time".to_owned(),
        |schedule| format!("daily {} in {}", schedule.window, schedule.time_zone),
    )
}

/// Lines of a budget that have a cap, in one line: `cost 0.50 USD of 20.00 USD (1.00 USD reserved)`.
pub(crate) fn capped(budget: &[BudgetLine]) -> Option<String> {
    let capped: Vec<String> = budget
        .iter()
        .filter_map(|line| {
            let amount = |value| amount(line.resource, value);
            let reserved =
                if line.reserved > 0 { format!(" ({} reserved)", amount(line.reserved)) } else { String::new() };
            Some(format!("{} {} of {}{reserved}", resource(line.resource), amount(line.used), amount(line.cap?)))
        })
        .collect();
    (!capped.is_empty()).then(|| capped.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_show_their_two_largest_units() {
        for (ms, text) in [
            (0, "0s"),
            (250, "250ms"),
            (90_000, "1m 30s"),
            (8 * 3_600_000, "8h"),
            (90_061_000, "1d 1h"),
            (86_400_001, "1d"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn money_has_two_digits_at_least_and_loses_none() {
        assert_eq!(dollars(1_500_000), "1.50 USD");
        assert_eq!(dollars(1), "0.000001 USD");
    }

    #[test]
    fn only_what_is_capped_is_told() {
        let line = |resource, cap| BudgetLine { resource, cap, used: 3, reserved: 1 };
        let budget = [line(Resource::Tokens, None), line(Resource::Attempts, Some(8))];
        assert_eq!(capped(&budget).as_deref(), Some("attempts 3 of 8 (1 reserved)"));
        assert_eq!(capped(&budget[..1]), None);
    }
}
