//! Throttles the logging of store errors: one message when a problem begins and one when it ends, regardless of the
//! number of loops and callers that retry.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nightshift_engine::store::StoreError;
use tokio::time::Instant;

/// Time after which an error without repetition is dropped, longer than the pause of any loop. A caller that stopped
/// retrying must not keep the problem open.
const LAPSE: Duration = Duration::from_mins(3);
/// Maximum number of tracked errors. Further errors are logged each time.
const MAX_TRACKED: usize = 1_000;

/// Operations that currently fail.
#[derive(Debug, Default)]
pub(crate) struct ErrorLogThrottle(Mutex<BTreeMap<String, OngoingError>>);

#[derive(Debug)]
struct OngoingError {
    code: String,
    last: Instant,
}

impl ErrorLogThrottle {
    /// Records that `doing` failed and will be retried.
    pub(crate) fn failed(&self, doing: &str, error: &StoreError) {
        self.failed_with(doing, error.code(), &error.to_string());
    }

    /// Records a failure by code and message.
    pub(crate) fn failed_with(&self, doing: &str, code: &str, message: &str) {
        if self.begins(doing, code, Instant::now()) {
            tracing::error!(
                error.code = code,
                error.message = message,
                doing,
                "the store fails; calls are retried, and repetitions are not logged"
            );
        } else {
            tracing::debug!(error.code = code, doing, "the store still fails");
        }
    }

    /// Records that `doing` succeeded.
    pub(crate) fn worked(&self, doing: &str) {
        if self.ends(doing, Instant::now()) {
            tracing::info!("the store works again");
        }
    }

    /// Records the failure. Returns whether no other operation fails for the same reason.
    fn begins(&self, doing: &str, code: &str, now: Instant) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, complaint| now.duration_since(complaint.last) < LAPSE);
        let news = open.values().all(|complaint| complaint.code != code);
        if open.len() < MAX_TRACKED || open.contains_key(doing) {
            open.insert(doing.to_owned(), OngoingError { code: code.to_owned(), last: now });
        }
        news
    }

    /// Removes the failure. Returns whether it was the last one.
    fn ends(&self, doing: &str, now: Instant) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_empty() {
            return false;
        }
        open.remove(doing);
        open.retain(|_, complaint| now.duration_since(complaint.last) < LAPSE);
        open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_at_its_start_and_when_the_last_operation_works_again() {
        let error_log = ErrorLogThrottle::default();
        let now = Instant::now();
        assert!(!error_log.ends("sweep", now), "nothing was wrong");
        assert!(error_log.begins("sweep", "store.full", now));
        assert!(!error_log.begins("sweep", "store.full", now));
        assert!(!error_log.begins("claim", "store.full", now), "it is the same trouble");
        assert!(error_log.begins("claim", "store.corrupt", now), "another cause is news");
        assert!(!error_log.ends("heartbeat", now), "what always worked proves nothing");
        assert!(!error_log.ends("sweep", now));
        assert!(error_log.ends("claim", now));
        assert!(error_log.begins("sweep", "store.full", now), "it begins anew");
    }

    #[test]
    fn a_caller_that_went_away_holds_no_trouble_open() {
        let error_log = ErrorLogThrottle::default();
        let now = Instant::now();
        assert!(error_log.begins("POST /campaigns", "store.full", now));
        assert!(error_log.ends("heartbeat", now + LAPSE));
        assert!(!error_log.ends("heartbeat", now + LAPSE));
    }
}
