//! Tests of a campaign's window: time zones, midnight, both clock changes, and work that does not fit.

use nightshift_engine::window::{Opening, UnknownTimeZone, opening, time_zone, usual_length_ms};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;
use proptest::prelude::*;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

fn schedule(window: &str, time_zone: &str) -> Schedule {
    let Ok(window) = window.parse() else { panic!("{window} is no window") };
    Schedule { window, time_zone: time_zone.to_owned() }
}

/// Parses a time in UTC.
fn utc(text: &str) -> TimestampMs {
    let Ok(moment) = chrono::DateTime::parse_from_rfc3339(&format!("{text}Z")) else { panic!("{text} is no moment") };
    TimestampMs(moment.timestamp_millis())
}

fn open_until(text: &str) -> Opening {
    Opening::Open { latest_start: utc(text) }
}

fn closed_until(text: &str) -> Opening {
    Opening::Closed { opens_at: utc(text) }
}

#[test]
fn a_window_within_a_day_opens_and_closes() {
    let day = schedule("08:00-18:00", "UTC");
    let at = |text| opening(&day, utc(text), HOUR_MS);
    assert_eq!(at("2026-06-10T07:59:59"), closed_until("2026-06-10T08:00:00"));
    assert_eq!(at("2026-06-10T08:00:00"), open_until("2026-06-10T17:00:00"));
    assert_eq!(at("2026-06-10T17:00:00"), open_until("2026-06-10T17:00:00"), "it would end with the window");
    assert_eq!(at("2026-06-10T17:00:01"), closed_until("2026-06-11T08:00:00"), "it would end after the window");
    assert_eq!(at("2026-06-10T23:00:00"), closed_until("2026-06-11T08:00:00"));
}

#[test]
fn a_window_over_midnight_stays_open_until_the_morning() {
    let night = schedule("20:00-07:30", "UTC");
    let at = |text| opening(&night, utc(text), HOUR_MS);
    assert_eq!(at("2026-06-10T19:59:00"), closed_until("2026-06-10T20:00:00"));
    assert_eq!(at("2026-06-10T20:00:00"), open_until("2026-06-11T06:30:00"));
    assert_eq!(at("2026-06-11T00:00:00"), open_until("2026-06-11T06:30:00"));
    assert_eq!(at("2026-06-11T06:30:00"), open_until("2026-06-11T06:30:00"));
    assert_eq!(at("2026-06-11T06:31:00"), closed_until("2026-06-11T20:00:00"));
}

#[test]
fn a_window_follows_its_own_time_zone() {
    let at = |zone| opening(&schedule("20:00-07:30", zone), utc("2026-06-10T12:00:00"), MINUTE_MS);
    assert_eq!(at("UTC"), closed_until("2026-06-10T20:00:00"));
    assert_eq!(at("Europe/Berlin"), closed_until("2026-06-10T18:00:00"));
    assert_eq!(at("America/New_York"), closed_until("2026-06-11T00:00:00"));
    assert_eq!(at("Asia/Tokyo"), open_until("2026-06-10T22:29:00"), "it is 21:00 there");
    assert_eq!(at("Asia/Kathmandu"), closed_until("2026-06-10T14:15:00"), "45 minutes off the hour");
    assert_eq!(at("Pacific/Kiritimati"), open_until("2026-06-10T17:29:00"), "it is the next day there");
}

#[test]
fn the_night_in_which_the_clocks_go_forward_is_an_hour_shorter() {
    // In Berlin 02:00 is followed by 03:00 on 29 March 2026.
    let night = schedule("20:00-07:30", "Europe/Berlin");
    assert_eq!(opening(&night, utc("2026-03-28T19:00:00"), 11 * HOUR_MS), closed_until("2026-03-29T18:00:00"));
    assert_eq!(
        opening(&night, utc("2026-03-28T19:00:00"), 10 * HOUR_MS + 30 * MINUTE_MS),
        open_until("2026-03-28T19:00:00")
    );
}

#[test]
fn a_window_that_opens_in_the_skipped_hour_opens_when_it_is_over() {
    let early = schedule("02:30-04:00", "Europe/Berlin");
    assert_eq!(opening(&early, utc("2026-03-29T00:00:00"), MINUTE_MS), closed_until("2026-03-29T01:00:00"));
    assert_eq!(opening(&early, utc("2026-03-29T01:00:00"), HOUR_MS), open_until("2026-03-29T01:00:00"));
    let all_skipped = schedule("02:15-02:45", "Europe/Berlin");
    assert_eq!(opening(&all_skipped, utc("2026-03-29T00:00:00"), MINUTE_MS), closed_until("2026-03-30T00:15:00"));
}

#[test]
fn the_night_in_which_the_clocks_go_back_is_an_hour_longer() {
    // In Berlin 03:00 is followed by 02:00 on 25 October 2026.
    let night = schedule("20:00-07:30", "Europe/Berlin");
    let twelve_hours_and_a_half = 12 * HOUR_MS + 30 * MINUTE_MS;
    assert_eq!(opening(&night, utc("2026-10-24T18:00:00"), twelve_hours_and_a_half), open_until("2026-10-24T18:00:00"));
    assert!(matches!(opening(&night, utc("2026-10-25T18:00:00"), twelve_hours_and_a_half), Opening::Closed { .. }));
}

#[test]
fn a_time_that_comes_twice_counts_from_the_first_to_the_last() {
    let early = schedule("02:15-02:45", "Europe/Berlin");
    assert_eq!(opening(&early, utc("2026-10-25T00:00:00"), MINUTE_MS), closed_until("2026-10-25T00:15:00"));
    assert_eq!(opening(&early, utc("2026-10-25T01:00:00"), MINUTE_MS), open_until("2026-10-25T01:44:00"));
    assert_eq!(opening(&early, utc("2026-10-25T01:45:00"), MINUTE_MS), closed_until("2026-10-26T01:15:00"));
}

#[test]
fn a_day_that_a_zone_left_out_has_no_window() {
    // Samoa went from 29 to 31 December 2011.
    let day = schedule("08:00-18:00", "Pacific/Apia");
    assert_eq!(opening(&day, utc("2011-12-30T05:00:00"), MINUTE_MS), closed_until("2011-12-30T18:00:00"));
}

#[test]
fn work_longer_than_the_window_is_decided_again_after_a_day() {
    let short = schedule("08:00-08:30", "UTC");
    let at = utc("2026-06-10T08:00:00");
    assert_eq!(opening(&short, at, 30 * MINUTE_MS), Opening::Open { latest_start: at });
    assert_eq!(opening(&short, at, 30 * MINUTE_MS + 1), closed_until("2026-06-11T08:00:00"));
    let odd = utc("2026-06-10T11:11:11");
    assert_eq!(opening(&short, odd, HOUR_MS), closed_until("2026-06-11T11:11:11"));
    assert_eq!(opening(&short, odd, u64::MAX), closed_until("2026-06-11T11:11:11"));
}

#[test]
fn a_moment_outside_of_any_calendar_is_asked_about_again() {
    let day = schedule("08:00-18:00", "UTC");
    let at = TimestampMs(i64::MAX);
    assert_eq!(opening(&day, at, 1), Opening::Closed { opens_at: at });
}

#[test]
fn an_unknown_time_zone_is_named() {
    assert_eq!(time_zone("Mars/Olympus").map(|_| ()), Err(UnknownTimeZone("Mars/Olympus".to_owned())));
    assert!(time_zone("Europe/Berlin").is_ok());
}

#[test]
fn a_window_has_a_length() {
    assert_eq!(usual_length_ms(&schedule("08:00-08:30", "UTC")), 30 * MINUTE_MS);
    assert_eq!(usual_length_ms(&schedule("20:00-07:30", "UTC")), 11 * HOUR_MS + 30 * MINUTE_MS);
    assert_eq!(usual_length_ms(&schedule("00:01-00:00", "UTC")), 24 * HOUR_MS - MINUTE_MS);
}

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn work_that_begins_in_time_ends_before_the_window_closes(
        begin in 0_u16..1_440,
        length in 1_u16..1_440,
        zone in prop::sample::select(ZONES.to_vec()),
        at_minute in 0_i64..2 * 366 * 1_440,
        duration_minutes in 0_u64..1_500,
    ) {
        let end = (begin + length) % 1_440;
        let text = format!("{:02}:{:02}-{:02}:{:02}", begin / 60, begin % 60, end / 60, end % 60);
        let schedule = schedule(&text, zone);
        let at = TimestampMs(utc("2025-12-01T00:00:00").0 + at_minute * 60_000);
        let duration_ms = duration_minutes * MINUTE_MS;
        match opening(&schedule, at, duration_ms) {
            Opening::Open { latest_start } => {
                prop_assert!(latest_start >= at);
                prop_assert!(matches!(opening(&schedule, at, 0), Opening::Open { .. }), "closed for what is shorter");
                // It stays open for the whole duration.
                let last = opening(&schedule, latest_start, duration_ms);
                prop_assert_eq!(last, Opening::Open { latest_start });
            }
            Opening::Closed { opens_at } => {
                prop_assert!(opens_at > at);
                // At its opening time it is open, unless no window is long enough.
                let then = opening(&schedule, opens_at, duration_ms);
                let fits = duration_ms <= usual_length_ms(&schedule).saturating_sub(2 * HOUR_MS);
                prop_assert!(!fits || matches!(then, Opening::Open { .. }), "{then:?}");
            }
        }
    }
}
