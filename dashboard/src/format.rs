//! Numbers and moments as text.

use nightshift_protocol::measurement::Interval;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::verdict::Answer;

/// `3.42× (3.31 to 3.50)`.
pub(crate) fn speedup(interval: Interval) -> String {
    format!("{:.2}× ({:.2} to {:.2})", interval.estimate, interval.low, interval.high)
}

/// A duration in the unit that fits.
pub(crate) fn nanoseconds(ns: f64) -> String {
    if ns >= 1e9 {
        format!("{:.2} s", ns / 1e9)
    } else if ns >= 1e6 {
        format!("{:.2} ms", ns / 1e6)
    } else if ns >= 1e3 {
        format!("{:.1} µs", ns / 1e3)
    } else {
        format!("{ns:.0} ns")
    }
}

/// `2026-11-21 06:30:00 UTC`.
pub(crate) fn moment(at: TimestampMs) -> String {
    chrono::DateTime::from_timestamp_millis(at.0)
        .map_or_else(|| format!("{} ms", at.0), |moment| moment.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// `yes`, `no`, `not known`.
pub(crate) fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Pass => "yes",
        Answer::Fail => "no",
        Answer::Inconclusive => "not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_of_the_calendar() {
        assert_eq!(moment(TimestampMs(0)), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(TimestampMs(951_782_400_000)), "2000-02-29 00:00:00 UTC");
        assert_eq!(moment(TimestampMs(1_795_242_601_500)), "2026-11-21 06:30:01 UTC");
        assert_eq!(moment(TimestampMs(i64::MAX)), format!("{} ms", i64::MAX));
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        assert_eq!(nanoseconds(950.0), "950 ns");
        assert_eq!(nanoseconds(12_345.0), "12.3 µs");
        assert_eq!(nanoseconds(6_789_000.0), "6.79 ms");
        assert_eq!(nanoseconds(2.5e9), "2.50 s");
    }
}
