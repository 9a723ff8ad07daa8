//! Measures how long steps used a device during the last hour.
//!
//! Callers pass all times; this module reads no clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_mins(1);
/// Length of the observed period in minutes.
const MINUTES: u64 = 60;

/// The use of one device, by minutes since the start.
#[derive(Debug)]
pub(super) struct Usage {
    begin: Instant,
    busy_since: Option<Instant>,
    /// The last minutes with use, and the time used in each.
    minutes: VecDeque<(u64, Duration)>,
}

impl Usage {
    pub(super) fn new(begin: Instant) -> Self {
        Self { begin, busy_since: None, minutes: VecDeque::new() }
    }

    /// Records that a step uses the device from now on, or that none does.
    pub(super) fn set(&mut self, is_busy: bool, now: Instant) {
        match (self.busy_since, is_busy) {
            (None, true) => self.busy_since = Some(now),
            (Some(since), false) => {
                self.add(since, now);
                self.busy_since = None;
            }
            _ => {}
        }
    }

    /// Returns the time used and the observed time: this minute and the 59 before it, or less after the start.
    pub(super) fn of_the_last_hour(&self, now: Instant) -> (Duration, Duration) {
        let first = (self.minute(now) + 1).saturating_sub(MINUTES);
        let from = self.begin_of(first);
        let before = self.minutes.iter().filter(|(minute, _)| *minute >= first).map(|(_, used)| *used);
        let still = self.busy_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since.max(from)));
        (before.sum::<Duration>() + still, now.saturating_duration_since(from))
    }

    fn add(&mut self, since: Instant, until: Instant) {
        let first = (self.minute(until) + 1).saturating_sub(MINUTES);
        let mut at = since.max(self.begin_of(first));
        while at < until {
            let minute = self.minute(at);
            let end = self.begin_of(minute + 1).min(until);
            match self.minutes.back_mut() {
                Some((last, used)) if *last == minute => *used += end - at,
                _ => self.minutes.push_back((minute, end - at)),
            }
            at = end;
        }
        while self.minutes.front().is_some_and(|(minute, _)| *minute < first) {
            self.minutes.pop_front();
        }
    }

    fn minute(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begin).as_secs() / MINUTE.as_secs()
    }

    fn begin_of(&self, minute: u64) -> Instant {
        self.begin + Duration::from_secs(minute * MINUTE.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_used_from_time_to_time_is_counted_with_what_is_used_now() {
        let begin = Instant::now();
        let mut usage = Usage::new(begin);
        assert_eq!(usage.of_the_last_hour(begin + after(30)), (after(0), after(30)));
        usage.set(true, begin + after(30));
        usage.set(true, begin + after(40));
        usage.set(false, begin + after(90));
        usage.set(false, begin + after(95));
        usage.set(true, begin + after(100));
        assert_eq!(usage.of_the_last_hour(begin + after(120)), (after(80), after(120)));
    }

    #[test]
    fn what_was_before_the_last_hour_does_not_count() {
        let begin = Instant::now();
        let mut usage = Usage::new(begin);
        usage.set(true, begin);
        usage.set(false, begin + after(100));
        // The minute of now and 59 before it: the first one and a half are out.
        let (used, of) = usage.of_the_last_hour(begin + after(3_690));
        assert_eq!((used, of), (after(0), after(3_690 - 120)));
        assert_eq!(usage.of_the_last_hour(begin + after(3_610)), (after(40), after(3_610 - 60)));
    }

    #[test]
    fn a_device_that_is_never_left_is_used_all_the_time_and_little_is_kept() {
        let begin = Instant::now();
        let mut usage = Usage::new(begin);
        for hour in 0..5 {
            usage.set(true, begin + after(hour * 3_600));
            usage.set(false, begin + after(hour * 3_600 + 3_600));
        }
        assert!(usage.minutes.len() <= 60, "{}", usage.minutes.len());
        let (used, of) = usage.of_the_last_hour(begin + after(5 * 3_600));
        assert!(used >= of && of > after(3_500), "{used:?} of {of:?}");
    }
}
