//! The store's errors as the log tells them: once when trouble begins and once when it is over, however many loops and
//! callers try again meanwhile.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nightshift_engine::store::StoreError;
use tokio::time::Instant;

/// How long a complaint counts that nobody repeats: more than the longest pause of any loop. A caller that went away
/// must not hold the trouble open forever.
const LAPSE: Duration = Duration::from_mins(3);
/// Complaints that are kept; what goes beyond is told as long as it goes on.
const MAX_COMPLAINTS: usize = 1_000;

/// What fails at the moment.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<BTreeMap<String, Complaint>>);

#[derive(Debug)]
struct Complaint {
    code: String,
    last: Instant,
}

impl Complaints {
    /// `doing` failed and will be tried again.
    pub(crate) fn failed(&self, doing: &str, error: &StoreError) {
        self.failed_with(doing, error.code(), &error.to_string());
    }

    /// The same for an error that has become code and message.
    pub(crate) fn failed_with(&self, doing: &str, code: &str, message: &str) {
        if self.begins(doing, code, Instant::now()) {
            tracing::error!(
                error.code = code,
                error.message = message,
                doing,
                "the store fails; it is tried again until it works, and repetitions are not logged"
            );
        } else {
            tracing::debug!(error.code = code, doing, "the store still fails");
        }
    }

    /// `doing` succeeded.
    pub(crate) fn worked(&self, doing: &str) {
        if self.ends(doing, Instant::now()) {
            tracing::info!("the store works again");
        }
    }

    /// Whether this is news: nothing else fails for the same reason.
    fn begins(&self, doing: &str, code: &str, now: Instant) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, complaint| now.duration_since(complaint.last) < LAPSE);
        let news = open.values().all(|complaint| complaint.code != code);
        if open.len() < MAX_COMPLAINTS || open.contains_key(doing) {
            open.insert(doing.to_owned(), Complaint { code: code.to_owned(), last: now });
        }
        news
    }

    /// Whether this was the last that failed.
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
    fn trouble_is_told_when_it_begins_and_when_the_last_that_failed_works() {
        let complaints = Complaints::default();
        let now = Instant::now();
        assert!(!complaints.ends("sweep", now), "nothing was wrong");
        assert!(complaints.begins("sweep", "store.full", now));
        assert!(!complaints.begins("sweep", "store.full", now));
        assert!(!complaints.begins("claim", "store.full", now), "it is the same trouble");
        assert!(complaints.begins("claim", "store.corrupt", now), "another cause is news");
        assert!(!complaints.ends("heartbeat", now), "what always worked proves nothing");
        assert!(!complaints.ends("sweep", now));
        assert!(complaints.ends("claim", now));
        assert!(complaints.begins("sweep", "store.full", now), "it begins anew");
    }

    #[test]
    fn a_caller_that_went_away_holds_no_trouble_open() {
        let complaints = Complaints::default();
        let now = Instant::now();
        assert!(complaints.begins("POST /campaigns", "store.full", now));
        assert!(complaints.ends("heartbeat", now + LAPSE));
        assert!(!complaints.ends("heartbeat", now + LAPSE));
    }
}
