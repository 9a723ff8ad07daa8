//! Budgets and windows of a campaign on the command line.

use std::collections::BTreeSet;

use clap::Args;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::campaign::{MAX_PRIORITY, MAX_WEIGHT, MIN_PRIORITY};
use nightshift_protocol::needs::Label;
use nightshift_protocol::schedule::{Schedule, Window};
use nightshift_protocol::signal::Gate;

use crate::failure::{Failure, Result};

/// Heading of these flags.
const HEADING: &str = "Limits of the campaign";
/// Millionths of a dollar.
const MICROUSD: f64 = 1_000_000.0;
/// Largest budget in dollars: beyond it, a number is a mistake.
const MAX_USD: f64 = 1_000_000.0;

/// Flags that cap what a campaign uses.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_field_names, reason = "they are named as the flags are")]
pub(crate) struct BudgetFlags {
    /// Maximum price of all model calls, in US dollars
    #[arg(long, value_name = "USD", value_parser = usd, help_heading = HEADING)]
    pub(crate) max_cost: Option<u64>,
    /// Tokens of all model calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = HEADING)]
    pub(crate) max_tokens: Option<u64>,
    /// Time on devices, for example 90m or 8h
    #[arg(long, value_name = "TIME", value_parser = duration_ms, help_heading = HEADING)]
    pub(crate) max_device_time: Option<u64>,
    /// Time from the campaign's creation, for example 12h
    #[arg(long, value_name = "TIME", value_parser = duration_ms, help_heading = HEADING)]
    pub(crate) max_wall_time: Option<u64>,
    /// Attempts of all runs together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = HEADING)]
    pub(crate) max_total_attempts: Option<u64>,
}

/// Flags that say when a campaign may work.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WindowFlags {
    /// Work only in this daily window; a step begins only if it can end in it
    #[arg(long, value_name = "20:00-07:30", help_heading = HEADING)]
    pub(crate) window: Option<Window>,
    /// Time zone of the window, as in Europe/Berlin
    #[arg(long, value_name = "ZONE", requires = "window", help_heading = HEADING)]
    pub(crate) time_zone: Option<String>,
}

/// Flags that bound a campaign.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LimitFlags {
    /// What it may use.
    #[command(flatten)]
    pub(crate) budget: BudgetFlags,
    /// When it may work.
    #[command(flatten)]
    pub(crate) window: WindowFlags,
    /// Head start of its steps, from -100 to 100
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = HEADING,
          value_parser = clap::value_parser!(i32).range(i64::from(MIN_PRIORITY)..=i64::from(MAX_PRIORITY)))]
    pub(crate) priority: Option<i32>,
    /// Share of machines relative to other campaigns, from 1 to 100
    #[arg(long, value_name = "N", help_heading = HEADING,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WEIGHT)))]
    pub(crate) weight: Option<u32>,
    /// Wait for `nightshift approve` at this gate; may be given several times
    #[arg(long = "approve", value_name = "GATE", value_parser = gate, help_heading = HEADING)]
    pub(crate) gates: Vec<Gate>,
    /// Use only machines with this label; may be given several times
    #[arg(long = "label", value_name = "LABEL", help_heading = HEADING)]
    pub(crate) labels: Vec<Label>,
}

/// What a campaign is created with.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// What it may use up.
    pub(crate) budget: BudgetCaps,
    /// When it may work.
    pub(crate) schedule: Option<Schedule>,
    /// Head start.
    pub(crate) priority: i32,
    /// Share.
    pub(crate) weight: u32,
    /// Where its runs wait.
    pub(crate) gates: BTreeSet<Gate>,
    /// Labels of machines.
    pub(crate) labels: BTreeSet<Label>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            budget: BudgetCaps::default(),
            schedule: None,
            priority: 0,
            weight: 1,
            gates: BTreeSet::new(),
            labels: BTreeSet::new(),
        }
    }
}

impl BudgetFlags {
    /// The caps.
    pub(crate) fn caps(&self) -> BudgetCaps {
        BudgetCaps {
            cost_microusd: self.max_cost,
            tokens: self.max_tokens,
            device_ms: self.max_device_time,
            attempts: self.max_total_attempts,
            wall_ms: self.max_wall_time,
        }
    }
}

impl WindowFlags {
    /// Returns the schedule. A window needs a time zone: UTC would rarely be what the user means.
    pub(crate) fn schedule(&self) -> Result<Option<Schedule>> {
        match (&self.window, &self.time_zone) {
            (None, _) => Ok(None),
            (Some(window), Some(zone)) => Ok(Some(Schedule { window: *window, time_zone: zone.clone() })),
            (Some(_), None) => Err(Failure::new("usage.invalid", "a window needs a time zone")
                .hint("add --time-zone, for example --time-zone Europe/Berlin")),
        }
    }
}

impl LimitFlags {
    /// Everything for a new campaign.
    pub(crate) fn limits(&self) -> Result<Limits> {
        Ok(Limits {
            budget: self.budget.caps(),
            schedule: self.window.schedule()?,
            priority: self.priority.unwrap_or_default(),
            weight: self.weight.unwrap_or(1),
            gates: self.gates.iter().copied().collect(),
            labels: self.labels.iter().cloned().collect(),
        })
    }
}

/// A gate by its name.
pub(crate) fn gate(text: &str) -> std::result::Result<Gate, String> {
    Gate::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Gate::ALL.iter().map(|gate| gate.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Dollars as millionths.
pub(crate) fn usd(text: &str) -> std::result::Result<u64, String> {
    let number: f64 =
        text.trim_start_matches('$').parse().map_err(|_| format!("`{text}` is no amount in US dollars"))?;
    if !(number.is_finite() && number > 0.0 && number <= MAX_USD) {
        return Err(format!("`{text}` is not above 0 and at most {MAX_USD} US dollars"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded and positive, see above")]
    let micro = (number * MICROUSD).round() as u64;
    Ok(micro.max(1))
}

/// A time such as `90s`, `15m`, `8h`, `2d`, in milliseconds.
pub(crate) fn duration_ms(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("`{text}` is no time: expected a number with s, m, h or d, as in 90m");
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let unit_ms: u64 = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let count: u64 = number.parse().map_err(|_| wrong())?;
    count.checked_mul(unit_ms).filter(|ms| *ms > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration_ms("90s"), Ok(90_000));
        assert_eq!(duration_ms("8h"), Ok(28_800_000));
        for wrong in ["", "8", "h", "-1h", "1.5h", "8 h", "0m", "9999999999999999999d", "8ü"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_positive_dollars() {
        assert_eq!(usd("1.5"), Ok(1_500_000));
        assert_eq!(usd("$0.000001"), Ok(1));
        for wrong in ["", "0", "-1", "inf", "nan", "1e9", "one"] {
            assert!(usd(wrong).is_err(), "{wrong}");
        }
    }
}
