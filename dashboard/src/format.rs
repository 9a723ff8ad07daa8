//! Numbers and moments as text.

use leptos::prelude::*;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::verdict::Answer;

/// Between the groups of a long number: a space that does not break and is not wide.
const GROUP: char = '\u{202f}';

/// `3.42× (3.31 to 3.50)`.
pub(crate) fn speedup(interval: Interval) -> String {
    format!("{:.2}× ({:.2} to {:.2})", interval.estimate, interval.low, interval.high)
}

/// `3 d 4 h`, `2 h 05 min`, `3 min 20 s`, `4.2 s`, `310 ms`: two units at most.
pub(crate) fn milliseconds(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        86_400.. => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
        3_600.. => format!("{} h {:02} min", seconds / 3_600, seconds % 3_600 / 60),
        60.. => format!("{} min {:02} s", seconds / 60, seconds % 60),
        1.. => format!("{seconds}.{} s", ms % 1_000 / 100),
        0 => format!("{ms} ms"),
    }
}

/// `1 234 567`, in groups of three.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(GROUP);
        }
        text.push(digit);
    }
    text
}

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a share from 0 to 1 in whole hundredths, rounded: 10 of 18 are `56 %`. An unknown value is a dash.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.filter(|share| share.is_finite()).map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// Formats a reward, with the same digits everywhere.
pub(crate) fn reward(reward: f64) -> String {
    format!("{reward:.3}")
}

/// Tokens, which replies from files do not have.
pub(crate) fn tokens(number: Option<u64>, scripted: bool) -> String {
    match number {
        _ if scripted => "–".to_owned(),
        Some(number) => count(number),
        None => "not known".to_owned(),
    }
}

/// Returns the name of a device without its vendor: `NVIDIA H200` becomes `H200`.
pub(crate) fn device(name: &str) -> String {
    const SAID_ANYWAY: [&str; 5] = ["NVIDIA", "Intel", "AMD", "CPU", "Processor"];
    let plain = name.split(" @ ").next().unwrap_or(name).replace("(R)", " ").replace("(TM)", " ");
    let words = plain.split_whitespace().filter(|word| !SAID_ANYWAY.contains(word) && !word.ends_with("-Core"));
    let short = words.collect::<Vec<_>>().join(" ");
    if short.is_empty() { name.to_owned() } else { short }
}

/// `1.5 GiB`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(size_bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if size_bytes < 1024 {
        return format!("{size_bytes} B");
    }
    let mut size = size_bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(size < 10.0);
    format!("{size:.digits$} {}", UNITS[unit])
}

/// Millionths of a US dollar as `$1.25`; small sums with the digits that tell them from nothing.
#[expect(clippy::cast_precision_loss, reason = "at most four digits after the point are shown")]
pub(crate) fn money(microusd: u64) -> String {
    match microusd {
        0 => "$0".to_owned(),
        1..=99 => "below $0.0001".to_owned(),
        100..=99_999 => format!("${:.4}", microusd as f64 / 1e6),
        _ => format!("${:.2}", microusd as f64 / 1e6),
    }
}

/// The price of model calls, which replies from files do not have.
pub(crate) fn price(microusd: u64, scripted: bool) -> String {
    if scripted { "–".to_owned() } else { money(microusd) }
}

/// The same in US dollars, as they come from sums of prices.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped to what fits")]
pub(crate) fn dollars(usd: f64, scripted: bool) -> String {
    if usd.is_finite() { price((usd.clamp(0.0, 1e12) * 1e6).round() as u64, scripted) } else { "not known".to_owned() }
}

/// `2026-11-21 06:30:00 UTC`.
pub(crate) fn moment(at: TimestampMs) -> String {
    written(at, "%Y-%m-%d %H:%M:%S UTC")
}

/// A moment as pages show it: the date, and how long ago that is, which the browser keeps current.
pub(crate) fn when(at: TimestampMs) -> impl IntoView + use<> {
    view! {
        <span class="when">
            <time datetime=written(at, "%Y-%m-%dT%H:%M:%SZ") title=moment(at)>{written(at, "%Y-%m-%d %H:%M")}</time>
            " "
            <span class="ago" data-ms=at.0.to_string()></span>
        </span>
    }
}

fn written(at: TimestampMs, pattern: &str) -> String {
    chrono::DateTime::from_timestamp_millis(at.0)
        .map_or_else(|| format!("{} ms", at.0), |moment| moment.format(pattern).to_string())
}

/// `yes`, `no`, `not known`.
pub(crate) fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Pass => "yes",
        Answer::Fail => "no",
        Answer::Inconclusive => "not known",
    }
}

/// The text with a full stop, unless it ends with a sign already: something else follows it.
pub(crate) fn sentence(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with(['.', '!', '?', ':']) {
        text.push('.');
    }
    text
}

/// A stored name for people: `correct_faster` becomes `correct faster`.
pub(crate) fn words(name: &str) -> String {
    name.replace('_', " ")
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
        let shown = [310, 4_250, 200_000, 7_500_000, 273_600_000].map(milliseconds);
        assert_eq!(shown, ["310 ms", "4.2 s", "3 min 20 s", "2 h 05 min", "3 d 4 h"]);
    }

    #[test]
    fn a_sentence_has_one_full_stop() {
        assert_eq!(
            ["it failed", "it failed.", "why?", ""].map(|text| sentence(text.to_owned())),
            ["it failed.", "it failed.", "why?", ""]
        );
    }

    #[test]
    fn long_numbers_come_in_groups() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
        assert_eq!(counted(1, "run", "runs"), "1 run");
        assert_eq!(counted(0, "run", "runs"), "0 runs");
    }

    #[test]
    fn sizes_and_sums_have_sensible_digits() {
        assert_eq!([12, 1_536, 151_397_597_184, u64::MAX].map(bytes), ["12 B", "1.5 KiB", "141 GiB", "16384 PiB"]);
        assert_eq!(
            [0, 7, 1_234, 250_000, 12_345_678].map(money),
            ["$0", "below $0.0001", "$0.0012", "$0.25", "$12.35"]
        );
    }

    #[test]
    fn shares_are_rounded_and_not_cut() {
        assert_eq!(
            [10.0 / 18.0, 0.994, 0.996, 1.0].map(|share| percent(Some(share))),
            ["56 %", "99 %", "100 %", "100 %"]
        );
        assert_eq!([None, Some(f64::NAN)].map(percent), ["–", "–"]);
    }

    #[test]
    fn replies_from_files_have_no_tokens() {
        assert_eq!([tokens(Some(0), true), tokens(None, true)], ["–", "–"]);
        assert_eq!([tokens(Some(1_200), false), tokens(None, false)], ["1\u{202f}200", "not known"]);
    }

    #[test]
    fn devices_have_names_that_fit_a_table() {
        let full = [
            "NVIDIA H200",
            "Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz",
            "AMD EPYC 9654 96-Core Processor",
            "CPU",
            "",
        ];
        assert_eq!(full.map(device), ["H200", "Xeon Platinum 8480+", "EPYC 9654", "CPU", ""]);
    }
}
