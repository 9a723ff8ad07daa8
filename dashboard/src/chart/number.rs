//! Numbers with units: at most three digits that matter, and the unit that fits.

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nothing but itself.
    Plain,
    /// Things.
    Count,
    /// A speedup: `2.4×`.
    Times,
    /// A share from 0 to 1, shown in hundredths.
    Share,
    /// Time, in nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerS,
    /// Floating-point operations per second.
    FlopsPerS,
    /// Floating-point operations per byte.
    FlopsPerByte,
}

/// The number with its unit.
pub(crate) fn show(value: f64, unit: Unit) -> String {
    if !value.is_finite() {
        return "not known".to_owned();
    }
    match unit {
        Unit::Plain | Unit::Count => significant(value),
        Unit::Times => format!("{}×", hundredths(value)),
        Unit::Share => format!("{} %", significant(value * 100.0)),
        Unit::FlopsPerByte => format!("{} FLOP/B", significant(value)),
        Unit::Nanoseconds => scaled(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
        Unit::Bytes => prefixed(value, "B"),
        Unit::BytesPerS => prefixed(value, "B/s"),
        Unit::FlopsPerS => prefixed(value, "FLOP/s"),
    }
}

/// The number with its unit at an axis, where `2×` says as much as `2.00×`.
pub(crate) fn tick(value: f64, unit: Unit) -> String {
    if unit == Unit::Times { format!("{}×", significant(value)) } else { show(value, unit) }
}

/// Two digits after the point, as speedups have them everywhere; more only where nothing else would be left.
fn hundredths(value: f64) -> String {
    if (0.01..1e7).contains(&value.abs()) { format!("{value:.2}") } else { significant(value) }
}

/// A value as a program gave it, rounded to nine digits: what tells two numbers of single precision apart.
pub(crate) fn precise(value: f64) -> String {
    let rounded = format!("{value:.8e}").parse().unwrap_or(value);
    if rounded == 0.0 || (1e-4..1e9).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

fn prefixed(value: f64, unit: &str) -> String {
    let steps = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
    let (factor, prefix) = fitting(value, &steps);
    format!("{} {prefix}{unit}", significant(value / factor))
}

fn scaled(value: f64, steps: &[(f64, &'static str)]) -> String {
    let (factor, unit) = fitting(value, steps);
    format!("{} {unit}", significant(value / factor))
}

/// The largest step that is not above the value; the smallest when all are. What would be rounded up to the next step
/// is shown in it.
fn fitting(value: f64, steps: &[(f64, &'static str)]) -> (f64, &'static str) {
    let last = steps.last().copied().unwrap_or((1.0, ""));
    steps.iter().copied().find(|(factor, _)| value.abs() >= factor * 0.9995).unwrap_or(last)
}

/// Three digits that matter, without needless zeros: `0.0123`, `1.5`, `123`, `1.2e9`.
pub(crate) fn significant(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "not known".to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&size) {
        return trimmed(&format!("{value:.2e}"));
    }
    let decimals = match size {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 => 2,
        s if s >= 0.09995 => 3,
        s if s >= 0.009_995 => 4,
        s if s >= 0.000_999_5 => 5,
        _ => 6,
    };
    grouped(trimmed(&format!("{value:.decimals$}")))
}

/// Long numbers in groups of three digits.
fn grouped(text: String) -> String {
    let digits = text.trim_start_matches('-');
    if digits.len() < 4 || digits.contains('.') {
        return text;
    }
    let mut groups = text[..text.len() - digits.len()].to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            groups.push('\u{202f}');
        }
        groups.push(digit);
    }
    groups
}

fn trimmed(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').map_or((text, ""), |(digits, exponent)| (digits, exponent));
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    if exponent.is_empty() { digits.to_owned() } else { format!("{digits}e{exponent}") }
}

/// The unit in which a time has few digits, in milliseconds, and what its axis is called.
pub(crate) fn since_beginning(whole_ms: u64) -> (f64, &'static str) {
    match whole_ms {
        0..300_000 => (1_000.0, "seconds since the beginning"),
        300_000..18_000_000 => (60_000.0, "minutes since the beginning"),
        18_000_000..432_000_000 => (3_600_000.0, "hours since the beginning"),
        _ => (86_400_000.0, "days since the beginning"),
    }
}

/// A count as a coordinate.
#[expect(clippy::cast_precision_loss, reason = "counts of marks are far below 2^52")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

/// A stored number as a coordinate.
#[expect(clippy::cast_precision_loss, reason = "charts need no more than seven digits")]
pub(crate) fn float_u64(count: u64) -> f64 {
    count as f64
}

/// Which of `count` boxes a share from 0 to 1 falls into; none without boxes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped to the boxes before")]
pub(crate) fn box_of(share: f64, count: usize) -> Option<usize> {
    let last = count.checked_sub(1)?;
    share.is_finite().then(|| ((share.clamp(0.0, 1.0) * float(count)) as usize).min(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_matter_and_the_unit_that_fits() {
        let shown = [
            (0.0, Unit::Plain, "0"),
            (0.012_34, Unit::Plain, "0.0123"),
            (999.6, Unit::Plain, "1\u{202f}000"),
            (6_537.0, Unit::Count, "6\u{202f}537"),
            (1.0, Unit::Times, "1.00×"),
            (21.892, Unit::Times, "21.89×"),
            (0.001_234, Unit::Times, "0.00123×"),
            (12.344, Unit::Times, "12.34×"),
            (0.5, Unit::Share, "50 %"),
            (999.6, Unit::Nanoseconds, "1 µs"),
            (7_203.5, Unit::Nanoseconds, "7.2 µs"),
            (2.5e9, Unit::Nanoseconds, "2.5 s"),
            (0.2, Unit::Nanoseconds, "0.2 ns"),
            (4.814e12, Unit::BytesPerS, "4.81 TB/s"),
            (66.9e12, Unit::FlopsPerS, "66.9 TFLOP/s"),
            (9_043_968.0, Unit::Plain, "9\u{202f}043\u{202f}968"),
            (-123_456.0, Unit::Plain, "-123\u{202f}456"),
            (1e300, Unit::Plain, "1e300"),
            (-1.5e-9, Unit::Plain, "-1.5e-9"),
            (f64::NAN, Unit::Times, "not known"),
        ];
        for (value, unit, text) in shown {
            assert_eq!(show(value, unit), text, "{value} {unit:?}");
        }
    }

    #[test]
    fn axes_have_short_numbers_and_values_nine_digits() {
        assert_eq!([tick(2.0, Unit::Times), tick(1.5, Unit::Times)], ["2×", "1.5×"]);
        let given = [0.1 + 0.2, 0.333_333_333_333_333_3, 1.0, 0.0, 1.234_567_890_123e-12, f64::NAN];
        assert_eq!(given.map(precise), ["0.3", "0.333333333", "1", "0", "1.23456789e-12", "NaN"]);
    }

    #[test]
    fn three_minutes_are_not_told_in_hours() {
        assert_eq!(since_beginning(180_000).1, "seconds since the beginning");
        assert_eq!(since_beginning(3_600_000).1, "minutes since the beginning");
        assert_eq!(since_beginning(8 * 3_600_000).1, "hours since the beginning");
        assert_eq!(since_beginning(u64::MAX).1, "days since the beginning");
    }

    #[test]
    fn every_share_has_a_box() {
        assert_eq!(box_of(0.0, 4), Some(0));
        assert_eq!(box_of(1.0, 4), Some(3));
        assert_eq!(box_of(7.0, 4), Some(3));
        assert_eq!(box_of(f64::NAN, 4), None);
        assert_eq!(box_of(0.5, 0), None);
    }
}
