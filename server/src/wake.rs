//! Wake-ups inside this process. Each is a hint that something may have changed; losing one only causes a delay until
//! the next poll.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nightshift_protocol::id::RunId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Number of notifiers that runs share. A fixed number needs no cleanup after a run.
const BELLS: usize = 64;
/// Maximum delay between the commit of our own decision and its notice.
const ECHO: Duration = Duration::from_millis(50);
/// Maximum time that a report waits for our own decision about the same run that is being committed. After it, the
/// driver decides, which is slower.
const PATIENCE: Duration = Duration::from_millis(20);
/// Maximum number of own decisions whose notices are recognized.
const MAX_ECHOES: usize = 4_096;
/// Maximum number of runs in the driver's inbox. Beyond it, the driver queries the store instead.
const MAX_INBOX: usize = 10_000;

/// The wake-ups of the loops.
pub(crate) struct Wake {
    inbox: Mutex<Inbox>,
    /// Runs with a decision that this server commits together with a report. The driver does not need its notice.
    echoes: Mutex<HashMap<RunId, Echo>>,
    decided: Notify,
    driver: Notify,
    pulse: Notify,
    bells: Vec<Notify>,
}

/// One of our own decisions.
struct Echo {
    /// Time until which its notice may arrive; none while it is being committed.
    until: Option<Instant>,
    /// Whether a notice arrived during the commit.
    heard: bool,
}

impl Echo {
    const BEING_MADE: Self = Self { until: None, heard: false };

    fn lasts(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
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
            echoes: Mutex::default(),
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

    /// Handles a notice that the log or status of this run changed.
    ///
    /// The driver ignores the notice of a decision that was committed with a report. If another change is hidden behind
    /// it, the heartbeat finds that change.
    pub(crate) fn noticed(&self, run: &RunId) {
        let is_echo = {
            let mut echoes = self.echoes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(echo) = echoes.get_mut(run).filter(|echo| echo.lasts()) {
                echo.heard = true;
                true
            } else {
                echoes.remove(run);
                false
            }
        };
        if is_echo { self.ring(run) } else { self.run_changed(run) }
    }

    /// Records that a decision is about to be committed with a report.
    pub(crate) fn deciding(&self, run: &RunId) {
        let mut echoes = self.echoes.lock().unwrap_or_else(PoisonError::into_inner);
        if echoes.len() >= MAX_ECHOES {
            echoes.retain(|_, echo| echo.lasts());
        }
        if echoes.len() < MAX_ECHOES {
            echoes.insert(run.clone(), Echo::BEING_MADE);
        }
    }

    /// Records the outcome. After a failure, the driver has to look.
    pub(crate) fn decided(&self, run: &RunId, is_committed: bool) {
        {
            let mut echoes = self.echoes.lock().unwrap_or_else(PoisonError::into_inner);
            match echoes.get_mut(run) {
                Some(echo) if is_committed => echo.until = Some(Instant::now() + ECHO),
                _ => {
                    echoes.remove(run);
                }
            }
        }
        self.decided.notify_waiters();
        if !is_committed {
            self.run_changed(run);
        }
    }

    /// Ends [`Self::deciding`] without a decision. Notices that arrived in between go to the driver.
    pub(crate) fn left(&self, run: &RunId) {
        let left = self.echoes.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
        self.decided.notify_waiters();
        if left.is_some_and(|echo| echo.heard) {
            self.run_changed(run);
        }
    }

    /// Waits briefly until no own decision about this run is being committed.
    pub(crate) async fn until_decided(&self, run: &RunId) {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut decided = std::pin::pin!(self.decided.notified());
            // Before the check, so that a decision in between counts.
            decided.as_mut().enable();
            if !self.is_deciding(run) {
                return;
            }
            tokio::select! {
                () = decided => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    fn is_deciding(&self, run: &RunId) -> bool {
        self.echoes.lock().unwrap_or_else(PoisonError::into_inner).get(run).is_some_and(|echo| echo.until.is_none())
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
    async fn the_notice_of_a_decision_of_ours_is_no_news() {
        let wake = Wake::new();
        wake.deciding(&run(1));
        wake.noticed(&run(1));
        wake.noticed(&run(2));
        assert_eq!(wake.take_mail().runs, HashSet::from([run(2)]));
        wake.decided(&run(1), true);
        wake.noticed(&run(1));
        assert!(wake.take_mail().runs.is_empty());
        tokio::time::advance(ECHO).await;
        wake.noticed(&run(1));
        assert_eq!(wake.take_mail().runs, HashSet::from([run(1)]), "it is another change");
    }

    #[tokio::test]
    async fn a_decision_that_was_not_committed_is_for_the_driver() {
        let wake = Wake::new();
        wake.deciding(&run(1));
        wake.decided(&run(1), false);
        assert_eq!(wake.take_mail().runs, HashSet::from([run(1)]));
        wake.noticed(&run(1));
        assert_eq!(wake.take_mail().runs, HashSet::from([run(1)]));
    }

    #[tokio::test]
    async fn notices_during_an_attempt_without_a_decision_reach_the_driver() {
        let wake = Wake::new();
        wake.deciding(&run(1));
        wake.left(&run(1));
        assert!(wake.take_mail().runs.is_empty());
        wake.deciding(&run(1));
        wake.noticed(&run(1));
        wake.left(&run(1));
        assert_eq!(wake.take_mail().runs, HashSet::from([run(1)]));
        wake.noticed(&run(1));
        assert_eq!(wake.take_mail().runs, HashSet::from([run(1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_waits_for_the_decision_before_it_and_not_for_ever() {
        let wake = Wake::new();
        wake.until_decided(&run(1)).await;
        wake.deciding(&run(1));
        let began = Instant::now();
        wake.until_decided(&run(2)).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "another run's decision is none of its business");
        let first = run(1);
        tokio::join!(wake.until_decided(&first), async { wake.decided(&first, true) });
        assert_eq!(began.elapsed(), Duration::ZERO);
        wake.deciding(&run(1));
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
