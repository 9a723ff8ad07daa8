//! Wake-ups inside this process. Each is a hint that something may have changed; losing one costs a slow poll, no more.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::id::RunId;
use tokio::sync::Notify;

/// Bells that runs share: a bounded number, so that nobody has to clean up after a run.
const BELLS: usize = 64;
/// Runs in the driver's inbox; beyond that the driver looks into the store instead.
const MAX_INBOX: usize = 10_000;

/// Who is to be woken.
pub(crate) struct Wake {
    inbox: Mutex<Inbox>,
    driver: Notify,
    pulse: Notify,
    bells: Vec<Notify>,
}

#[derive(Default)]
struct Inbox {
    runs: HashSet<RunId>,
    look_again: bool,
}

/// What the driver finds in its inbox.
#[derive(Debug, Default)]
pub(crate) struct DriverMail {
    /// Runs that changed.
    pub(crate) runs: HashSet<RunId>,
    /// Whether the store has to be asked for more.
    pub(crate) look_again: bool,
}

impl Wake {
    pub(crate) fn new() -> Self {
        Self {
            inbox: Mutex::default(),
            driver: Notify::new(),
            pulse: Notify::new(),
            bells: (0..BELLS).map(|_| Notify::new()).collect(),
        }
    }

    /// The log or status of this run changed.
    pub(crate) fn run_changed(&self, run: &RunId) {
        {
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            if inbox.runs.len() < MAX_INBOX {
                inbox.runs.insert(run.clone());
            } else {
                inbox.look_again = true;
            }
        }
        self.driver.notify_one();
        self.ring(run);
    }

    /// Some runs wait for a decision, it is not known which.
    pub(crate) fn look_for_runs(&self) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).look_again = true;
        self.driver.notify_one();
    }

    /// Anything may have changed.
    pub(crate) fn everything(&self) {
        self.look_for_runs();
        self.pulse.notify_one();
        for bell in &self.bells {
            bell.notify_waiters();
        }
    }

    /// Whoever watches this run should look again.
    pub(crate) fn ring(&self, run: &RunId) {
        self.bell(run).notify_waiters();
    }

    /// Takes the driver's mail.
    pub(crate) fn take_mail(&self) -> DriverMail {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        DriverMail { runs: std::mem::take(&mut inbox.runs), look_again: std::mem::take(&mut inbox.look_again) }
    }

    /// Waits for mail. One driver per process: a wake-up before the call is kept.
    pub(crate) async fn mail(&self) {
        self.driver.notified().await;
    }

    /// Waits until the pulse should come early. One pulse per process: a wake-up before the call is kept.
    pub(crate) async fn pulse(&self) {
        self.pulse.notified().await;
    }

    /// The notification that this run, or one that shares its bell, changed. Enable it before looking at the run.
    pub(crate) fn bell(&self, run: &RunId) -> &Notify {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        let index = hasher.finish() % (BELLS as u64);
        &self.bells[usize::try_from(index).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::id::RunId;

    use super::*;

    fn run(number: u128) -> RunId {
        RunId::from_uuid(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn mail_is_taken_once() {
        let wake = Wake::new();
        wake.run_changed(&run(1));
        wake.run_changed(&run(1));
        wake.look_for_runs();
        let mail = wake.take_mail();
        assert_eq!(mail.runs.len(), 1);
        assert!(mail.look_again);
        let mail = wake.take_mail();
        assert!(mail.runs.is_empty() && !mail.look_again);
    }

    #[test]
    fn a_full_inbox_sends_the_driver_to_the_store() {
        let wake = Wake::new();
        for number in 0..=MAX_INBOX as u128 {
            wake.run_changed(&run(number));
        }
        let mail = wake.take_mail();
        assert_eq!(mail.runs.len(), MAX_INBOX);
        assert!(mail.look_again);
    }

    #[tokio::test]
    async fn mail_that_came_before_the_driver_looked_is_not_lost() {
        let wake = Wake::new();
        wake.run_changed(&run(1));
        wake.mail().await;
        assert_eq!(wake.take_mail().runs.len(), 1);
    }
}
