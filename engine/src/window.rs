//! Computes a campaign's daily window on the time line. Pure.

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeZone as _, Utc};
use chrono_tz::Tz;
use nightshift_protocol::schedule::{DAY_MINUTES, Schedule};
use nightshift_protocol::time::TimestampMs;

/// Days to search for the next opening. Several days in a row may have no opening that fits.
const MAX_DAYS_AHEAD: u64 = 8;
/// Delay before the next search when no window of the coming days fits. Time zone rules or the campaign's window may
/// change.
const ASK_AGAIN_MS: u64 = 24 * 60 * 60 * 1_000;

/// A time zone that is not in the database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no time zone: expected a name of the IANA database, as in Europe/Berlin")]
pub struct UnknownTimeZone(pub String);

/// Whether work of a given duration may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It may begin now.
    Open {
        /// Latest start at which it still ends before the window closes.
        latest_start: TimestampMs,
    },
    /// It may not begin now.
    Closed {
        /// The next opening of a window in which it fits. If none fits, the time of the next search.
        opens_at: TimestampMs,
    },
}

/// Returns the time zone of that name.
pub fn time_zone(name: &str) -> Result<Tz, UnknownTimeZone> {
    name.parse().map_err(|_| UnknownTimeZone(name.to_owned()))
}

/// Returns the length of the window on a day without a clock change, in milliseconds. Longer work never begins in it.
#[must_use]
pub fn usual_length_ms(schedule: &Schedule) -> u64 {
    let (begin, end) = (schedule.window.begin_minute(), schedule.window.end_minute());
    let minutes = if end > begin { end - begin } else { DAY_MINUTES - begin + end };
    u64::from(minutes) * 60_000
}

/// Returns whether work of up to `duration_ms` may begin at `at`.
///
/// A local time that a clock change skips begins where time resumes. A repeated local time counts from its first to its
/// last occurrence. An unknown time zone reads as UTC, because creating a campaign refuses it.
#[must_use]
pub fn opening(schedule: &Schedule, at: TimestampMs, duration_ms: u64) -> Opening {
    let zone = time_zone(&schedule.time_zone).unwrap_or(Tz::UTC);
    let ask_again = Opening::Closed { opens_at: at.plus_ms(ASK_AGAIN_MS) };
    let Some(now) = DateTime::<Utc>::from_timestamp_millis(at.0) else { return ask_again };
    let today = now.with_timezone(&zone).date_naive();
    // A window that opened yesterday may still be open.
    for day in (0..=MAX_DAYS_AHEAD).filter_map(|n| today.pred_opt()?.checked_add_days(Days::new(n))) {
        let Some((opens_at, closes_at)) = on_day(schedule, zone, day) else { continue };
        let latest_start = TimestampMs(closes_at.0.saturating_sub(i64::try_from(duration_ms).unwrap_or(i64::MAX)));
        if latest_start < opens_at || latest_start < at {
            continue;
        }
        return if opens_at <= at { Opening::Open { latest_start } } else { Opening::Closed { opens_at } };
    }
    ask_again
}

/// Returns the window that opens on this day of the zone.
fn on_day(schedule: &Schedule, zone: Tz, day: NaiveDate) -> Option<(TimestampMs, TimestampMs)> {
    let (begin, end) = (schedule.window.begin_minute(), schedule.window.end_minute());
    let end_day = if end <= begin { day.succ_opt()? } else { day };
    let opens_at = moment(zone, day, begin, Twice::First)?;
    let closes_at = moment(zone, end_day, end, Twice::Last)?;
    Some((opens_at, closes_at))
}

/// Selects one of two moments with the same local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twice {
    First,
    Last,
}

fn moment(zone: Tz, day: NaiveDate, minute: u16, twice: Twice) -> Option<TimestampMs> {
    let minute = u32::from(minute);
    // A skipped local time: search the next existing one, minute by minute, at most a few hours ahead.
    for later in 0..24 * 60 {
        let total = minute + later;
        let date = day.checked_add_days(Days::new(u64::from(total / (24 * 60))))?;
        let local = date.and_time(NaiveTime::from_hms_opt(total % (24 * 60) / 60, total % 60, 0)?);
        let found = zone.from_local_datetime(&local);
        let found = if twice == Twice::First { found.earliest() } else { found.latest() };
        if let Some(found) = found {
            return Some(TimestampMs(found.timestamp_millis()));
        }
    }
    None
}
