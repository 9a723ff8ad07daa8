//! The leases of this worker: until when each is surely valid, and why a step has to stop.
//!
//! Callers pass all times; this module reads no clock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nightshift_protocol::api::HeartbeatReply;
use nightshift_protocol::id::StepId;
use tokio_util::sync::CancellationToken;

use nightshift_sandbox::process::CancelFlag;

/// Why a step has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The lease is lost or may be: the server will not accept the result.
    Lost,
    /// The step was cancelled.
    Cancelled,
    /// The step exceeded its time limit.
    TimedOut,
    /// The worker ends.
    ShuttingDown,
}

/// A step that this worker holds a lease for.
#[derive(Debug, Default)]
pub(crate) struct HeldStep {
    /// Kills the processes of the step.
    pub(crate) work: CancelFlag,
    /// Set with the first cause to stop.
    pub(crate) stopped: CancellationToken,
    /// Set when the lease is lost, so that even a report is useless.
    pub(crate) lost: CancellationToken,
    /// Whether a report is being sent.
    reporting: AtomicBool,
    cause: Mutex<Option<StopCause>>,
}

impl HeldStep {
    /// Stops the work. The first cause counts, except that a lost lease overrides every other.
    pub(crate) fn stop(&self, cause: StopCause) {
        {
            let mut known = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
            if known.is_none() || cause == StopCause::Lost {
                *known = Some(cause);
            }
        }
        self.work.cancel();
        self.stopped.cancel();
        if cause == StopCause::Lost {
            self.lost.cancel();
        }
    }

    /// Records whether a report is being sent. A heartbeat that the server handles after the report finds no lease; the
    /// worker ignores that. Only the answer to the report names the next steps.
    pub(crate) fn reports(&self, is_on_its_way: bool) {
        self.reporting.store(is_on_its_way, Ordering::Relaxed);
    }

    /// Returns why the step has to stop, if it has to.
    pub(crate) fn cause(&self) -> Option<StopCause> {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All steps that this worker holds a lease for.
#[derive(Debug)]
pub(crate) struct HeldSteps {
    lease: Duration,
    leases: Mutex<HashMap<(StepId, u64), Lease>>,
}

#[derive(Debug)]
struct Lease {
    hold: Arc<HeldStep>,
    valid_until: Instant,
}

impl HeldSteps {
    /// Creates an empty set. A lease is valid for this time after the sending of a heartbeat that names it. A tenth of the
    /// time is reserved for killing.
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease: lease.mul_f64(0.9), leases: Mutex::new(HashMap::new()) }
    }

    /// Adds a claimed step. Earlier leases of the same step are stopped.
    pub(crate) fn add(&self, step: &StepId, epoch: u64, now: Instant) -> Arc<HeldStep> {
        let hold = Arc::new(HeldStep::default());
        let mut leases = self.leases();
        for ((held, _), earlier) in leases.iter() {
            if held == step {
                earlier.hold.stop(StopCause::Lost);
            }
        }
        let lease = Lease { hold: Arc::clone(&hold), valid_until: now + self.lease };
        leases.insert((step.clone(), epoch), lease);
        hold
    }

    /// Removes a step that is over.
    pub(crate) fn remove(&self, step: &StepId, epoch: u64) {
        self.leases().remove(&(step.clone(), epoch));
    }

    /// Returns the leases that a heartbeat has to name.
    pub(crate) fn to_renew(&self) -> Vec<(StepId, u64)> {
        let leases = self.leases();
        let mut living: Vec<(StepId, u64)> =
            leases.iter().filter(|(_, lease)| !lease.hold.lost.is_cancelled()).map(|(key, _)| key.clone()).collect();
        living.sort();
        living
    }

    /// Applies the answer to a heartbeat that was sent at `sent_at` with these leases.
    pub(crate) fn renewed(&self, named: &[(StepId, u64)], sent_at: Instant, reply: &HeartbeatReply) {
        let mut leases = self.leases();
        for key in named {
            let Some(lease) = leases.get_mut(key) else { continue };
            if reply.lost.contains(&key.0) {
                if !lease.hold.reporting.load(Ordering::Relaxed) {
                    lease.hold.stop(StopCause::Lost);
                }
                continue;
            }
            // Counted from the sending, because the server cannot have extended the lease earlier.
            lease.valid_until = lease.valid_until.max(sent_at + self.lease);
            if reply.cancelled.contains(&key.0) {
                lease.hold.stop(StopCause::Cancelled);
            }
        }
    }

    /// Stops and returns every lease that is no longer surely valid.
    pub(crate) fn fence(&self, now: Instant) -> Vec<StepId> {
        let leases = self.leases();
        let mut fenced = Vec::new();
        for ((step, _), lease) in leases.iter() {
            if lease.valid_until <= now && !lease.hold.lost.is_cancelled() {
                lease.hold.stop(StopCause::Lost);
                fenced.push(step.clone());
            }
        }
        fenced
    }

    /// Stops all steps.
    pub(crate) fn stop_all(&self, cause: StopCause) {
        for lease in self.leases().values() {
            lease.hold.stop(cause);
        }
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<(StepId, u64), Lease>> {
        // Every change is a single operation, so a panic leaves the map consistent.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn step(n: u128) -> StepId {
        StepId::from_uuid(uuid::Uuid::from_u128(n))
    }

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn reply(lost: &[StepId], cancelled: &[StepId]) -> HeartbeatReply {
        HeartbeatReply { lost: lost.to_vec(), cancelled: cancelled.to_vec(), released: Vec::new() }
    }

    #[test]
    fn without_heartbeats_a_lease_is_given_up_before_it_runs_out() {
        let table = HeldSteps::new(LEASE);
        let begin = Instant::now();
        let hold = table.add(&step(1), 1, begin);
        assert!(table.fence(begin + after(8)).is_empty());
        assert_eq!(table.fence(begin + after(9)), [step(1)]);
        assert_eq!(hold.cause(), Some(StopCause::Lost));
        assert!(hold.work.is_cancelled() && table.to_renew().is_empty());
        assert!(table.fence(begin + after(20)).is_empty(), "it is given up once");
    }

    #[test]
    fn a_heartbeat_extends_from_the_moment_it_was_sent() {
        let table = HeldSteps::new(LEASE);
        let begin = Instant::now();
        let hold = table.add(&step(1), 1, begin);
        table.renewed(&table.to_renew(), begin + after(5), &reply(&[], &[]));
        assert!(table.fence(begin + after(13)).is_empty());
        assert_eq!(table.fence(begin + after(14)), [step(1)]);
        assert!(hold.lost.is_cancelled());
    }

    #[test]
    fn a_lease_that_was_claimed_after_the_heartbeat_was_sent_is_not_touched_by_its_answer() {
        let table = HeldSteps::new(LEASE);
        let begin = Instant::now();
        let named = table.to_renew();
        let hold = table.add(&step(1), 1, begin);
        table.renewed(&named, begin + after(5), &reply(&[step(1)], &[]));
        assert_eq!(hold.cause(), None);
        assert_eq!(table.fence(begin + after(9)), [step(1)]);
    }

    #[test]
    fn cancelled_work_keeps_its_lease_until_it_is_reported() {
        let table = HeldSteps::new(LEASE);
        let begin = Instant::now();
        let hold = table.add(&step(1), 1, begin);
        table.renewed(&table.to_renew(), begin, &reply(&[], &[step(1)]));
        assert_eq!(hold.cause(), Some(StopCause::Cancelled));
        assert_eq!(table.to_renew(), [(step(1), 1)]);
        table.renewed(&table.to_renew(), begin, &reply(&[step(1)], &[]));
        assert_eq!(hold.cause(), Some(StopCause::Lost), "losing the lease overrides");
    }

    #[test]
    fn a_heartbeat_that_overtakes_the_answer_to_a_report_does_not_end_it() {
        let table = HeldSteps::new(LEASE);
        let begin = Instant::now();
        let hold = table.add(&step(1), 1, begin);
        hold.reports(true);
        table.renewed(&table.to_renew(), begin + after(5), &reply(&[step(1)], &[]));
        assert_eq!(hold.cause(), None, "the lease ended with the very report");
        assert_eq!(table.fence(begin + after(9)), [step(1)], "but it was not extended");
        let again = table.add(&step(2), 1, begin);
        again.reports(true);
        again.reports(false);
        table.renewed(&table.to_renew(), begin, &reply(&[step(2)], &[]));
        assert_eq!(again.cause(), Some(StopCause::Lost), "between two tries of a report it counts");
    }

    #[test]
    fn a_step_that_comes_back_under_a_new_epoch_ends_the_old_work() {
        let table = HeldSteps::new(LEASE);
        let begin = Instant::now();
        let old = table.add(&step(1), 1, begin);
        let new = table.add(&step(1), 2, begin);
        assert_eq!((old.cause(), new.cause()), (Some(StopCause::Lost), None));
        assert_eq!(table.to_renew(), [(step(1), 2)]);
        table.remove(&step(1), 1);
        assert_eq!(table.to_renew(), [(step(1), 2)]);
    }
}
