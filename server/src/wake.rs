//! Wake-ups inside this process. Each is a hint that something may have changed; losing one only causes a delay until
//! the next poll.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::id::RunId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Number of notifiers that runs share. A fixed number needs no cleanup after a run.
const BELLS: usize = 64;
/// Maximum wait of a report or of the driver for our own decision about the same run. After it, both go on without it.
const PATIENCE: Duration = Duration::from_millis(20);
/// Maximum number of runs in the driver's inbox. Beyond it, the driver queries the store instead.
const MAX_INBOX: usize = 10_000;

/// The wake-ups of the loops.
pub(crate) struct Wake {
    inbox: Mutex<Inbox>,
    /// Runs about which this server is committing a decision.
    deciding: Mutex<HashSet<RunId>>,
    decided: Notify,
    driver: Notify,
    pulse: Notify,
    bells: Vec<Notify>,
}

/// A decision that is being committed.
pub(crate) struct Deciding<'a> {
    wake: &'a Wake,
    run: RunId,
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.wake.being_decided().remove(&self.run);
        self.wake.decided.notify_waiters();
    }
}

#[derive(Default)]
struct Inbox {
    runs: HashSet<RunId>,
    look_again: bool,
}

/// The content of the driver's inbox.
#[derive(Debug, Default)]
pub(crate) struct DriverMail {
    /// Changed runs.
    pub(crate) runs: HashSet<RunId>,
    /// Whether to query the store for more runs.
    pub(crate) look_again: bool,
}

impl Wake {
    pub(crate) fn new() -> Self {
        Self {
            inbox: Mutex::default(),
            deciding: Mutex::default(),
            decided: Notify::new(),
            driver: Notify::new(),
            pulse: Notify::new(),
            bells: (0..BELLS).map(|_| Notify::new()).collect(),
        }
    }

    /// Records that the log or status of this run changed.
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

    /// Records that a decision about this run is being committed, until the returned value is dropped.
    pub(crate) fn deciding(&self, run: &RunId) -> Deciding<'_> {
        self.being_decided().insert(run.clone());
        Deciding { wake: self, run: run.clone() }
    }

    /// Waits briefly until no own decision about this run is being committed.
    pub(crate) async fn until_decided(&self, run: &RunId) {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut decided = std::pin::pin!(self.decided.notified());
            // Before the check, so that a decision in between counts.
            decided.as_mut().enable();
            if !self.being_decided().contains(run) {
                return;
            }
            tokio::select! {
                () = decided => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    fn being_decided(&self) -> MutexGuard<'_, HashSet<RunId>> {
        self.deciding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the driver because unknown runs wait for a decision.
    pub(crate) fn look_for_runs(&self) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).look_again = true;
        self.driver.notify_one();
    }

    /// Wakes all loops.
    pub(crate) fn everything(&self) {
        self.look_for_runs();
        self.pulse.notify_one();
        for bell in &self.bells {
            bell.notify_waiters();
        }
    }

    /// Wakes the observers of this run.
    pub(crate) fn ring(&self, run: &RunId) {
        self.bell(run).notify_waiters();
    }

    /// Takes the driver's inbox.
    pub(crate) fn take_mail(&self) -> DriverMail {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        DriverMail { runs: std::mem::take(&mut inbox.runs), look_again: std::mem::take(&mut inbox.look_again) }
    }

    /// Waits for the driver's inbox. There is one driver per process: a wake-up before the call is not lost.
    pub(crate) async fn mail(&self) {
        self.driver.notified().await;
    }

    /// Waits for a request to send the heartbeat early. There is one heartbeat loop per process: a wake-up before the
    /// call is not lost.
    pub(crate) async fn pulse(&self) {
        self.pulse.notified().await;
    }

    /// Returns the notifier of this run, which it may share. Enable it before reading the run.
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

    #[tokio::test(start_paused = true)]
    async fn a_report_waits_for_the_decision_before_it_and_not_for_ever() {
        let wake = Wake::new();
        wake.until_decided(&run(1)).await;
        let deciding = wake.deciding(&run(1));
        let began = Instant::now();
        wake.until_decided(&run(2)).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "another run's decision is none of its business");
        let first = run(1);
        tokio::join!(wake.until_decided(&first), async { drop(deciding) });
        assert_eq!(began.elapsed(), Duration::ZERO);
        let _deciding = wake.deciding(&run(1));
        wake.until_decided(&run(1)).await;
        assert_eq!(began.elapsed(), PATIENCE, "the decision may never be committed");
    }

    #[tokio::test]
    async fn mail_that_came_before_the_driver_looked_is_not_lost() {
        let wake = Wake::new();
        wake.run_changed(&run(1));
        wake.mail().await;
        assert_eq!(wake.take_mail().runs.len(), 1);
    }
}
